#include "family/tensor_tables.h"

namespace kvcal {

Architecture qwen2_vl_architecture();

// Qwen2 within Qwen2.5-VL. Source: transformers, models/qwen2_5_vl.
Architecture qwen2_5_vl_architecture() {
  Architecture family = qwen2_vl_architecture();
  family.name = "qwen2_5_vl";
  family.model_types = {"qwen2_5_vl_text"};
  family.attention_class = "Qwen2_5_VLAttention";
  family.description = "text model of Qwen2.5-VL";
  return family;
}

}  // namespace kvcal
