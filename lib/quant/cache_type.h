#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/cache_format.h"
#include "quant/fp8.h"

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
  constexpr std::string_view kNames[] = {"float32",  "float16",      "bfloat16",
                                         "fp8_e4m3", "fp8_e4m3fnuz", "fp8_e5m2"};
  return kNames[static_cast<size_t>(dtype)];
}

/// Dtype with this name, or one that an engine gives it; nullopt where there is none.
std::optional<KvDType> find_kv_dtype(std::string_view name);
std::vector<std::string> kv_dtype_names();
/// Dtype with this name. Throws Error with "did you mean".
KvDType parse_kv_dtype(std::string_view name);

/// The type of a KV cache: elements of a dtype, which stand for it without conversion, or an
/// engine's format, which kvcal simulates.
struct CacheType {
  constexpr CacheType(KvDType elements) : dtype(elements) {}
  constexpr CacheType(CacheFormat simulated) : dtype(KvDType::kFloat32), format(simulated) {}

  KvDType dtype;  ///< of the elements in memory: float32 of a simulated format
  std::optional<CacheFormat> format = {};

  friend constexpr auto operator<=>(const CacheType&, const CacheType&) = default;
};

constexpr bool is_quantized(const CacheType& type) {
  return type.format || is_fp8(type.dtype);
}
/// Whether each layer needs scales.
constexpr bool needs_scales(const CacheType& type) {
  return type.format ? layout_of(*type.format).needs_scales : is_fp8(type.dtype);
}
/// Bytes of K and V of one head and token as an engine stores them.
constexpr int64_t bytes_of(const CacheType& type, const CachedSizes& sizes) {
  return type.format ? bytes_of(layout_of(*type.format), sizes)
                     : (sizes.k + sizes.v) * bytes_per_element(type.dtype);
}
/// Name on the command line: "fp8_e4m3", "int8_per_token_head".
constexpr std::string_view name_of(const CacheType& type) {
  return type.format ? name_of(*type.format) : name_of(type.dtype);
}
/// Type with this name. Throws Error with "did you mean".
CacheType parse_cache_type(std::string_view name);

}  // namespace kvcal
