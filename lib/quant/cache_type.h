#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

#include "quant/cache_format.h"
#include "quant/kv_dtype.h"

namespace kvcal {

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
/// Bytes of K or V of one head and token as an engine stores them.
constexpr int64_t bytes_of_head(const CacheType& type, int64_t head_dim) {
  return type.format ? bytes_of_head(layout_of(*type.format), head_dim)
                     : head_dim * bytes_per_element(type.dtype);
}
/// Name on the command line: "fp8_e4m3", "int8_per_token_head".
constexpr std::string_view name_of(const CacheType& type) {
  return type.format ? name_of(*type.format) : name_of(type.dtype);
}
/// Type with this name. Throws Error with "did you mean".
CacheType parse_cache_type(std::string_view name);

}  // namespace kvcal
