#pragma once

#include "quant/fp8.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Dtype of the elements of a KV cache.
enum class KvDType : uint8_t { kFloat32, kFloat16, kBFloat16, kFp8E4m3, kFp8E4m3Fnuz, kFp8E5m2 };

constexpr bool is_fp8(KvDType dtype) {
  return dtype >= KvDType::kFp8E4m3;
}
constexpr int bytes_per_element(KvDType dtype) {
  return is_fp8(dtype) ? 1 : dtype == KvDType::kFloat32 ? 4 : 2;
}
/// The FP8 format of an FP8 cache.
constexpr fp8::Format fp8_format(KvDType dtype) {
  return dtype == KvDType::kFp8E5m2       ? fp8::Format::kE5m2
         : dtype == KvDType::kFp8E4m3Fnuz ? fp8::Format::kE4m3Fnuz
                                          : fp8::Format::kE4m3Fn;
}
/// Name on the command line, "fp8_e4m3".
constexpr std::string_view name_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::kFloat32:
      return "float32";
    case KvDType::kFloat16:
      return "float16";
    case KvDType::kBFloat16:
      return "bfloat16";
    case KvDType::kFp8E4m3:
      return "fp8_e4m3";
    case KvDType::kFp8E4m3Fnuz:
      return "fp8_e4m3fnuz";
    case KvDType::kFp8E5m2:
      return "fp8_e5m2";
  }
  return "";
}
/// Dtype with this name, or one that an engine gives it; nullopt where there is none.
std::optional<KvDType> find_kv_dtype(std::string_view name);
std::vector<std::string> kv_dtype_names();
/// Dtype with this name. Throws Error with "did you mean".
KvDType parse_kv_dtype(std::string_view name);

}  // namespace kvcal
