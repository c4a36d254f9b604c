#include "backend/backend.h"

namespace kvcal {

std::string_view name_of(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat32:
      return "float32";
    case ComputeType::kBFloat16:
      return "bfloat16";
    case ComputeType::kFloat16:
      return "float16";
  }
  return "";
}

}  // namespace kvcal
