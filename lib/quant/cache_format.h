#pragma once

#include <cstdint>
#include <string_view>

#include "quant/cache_formats/fp8_per_token_head.h"
#include "quant/cache_formats/int4_per_token_head.h"
#include "quant/cache_formats/int8.h"
#include "quant/cache_formats/int8_per_token_head.h"
#include "quant/cache_formats/layout.h"
#include "quant/cache_formats/mxfp8.h"
#include "quant/cache_formats/nvfp4.h"
#include "quant/kv_dtype.h"

namespace kvcal {

// clang-format off

/// Calls row(enumerator, name) for each format of a KV cache whose codes kvcal does not keep: it
/// computes what an engine reads of what it stored. name is the engine's, the namespace of
/// cache_formats and the file there, which names the source.
#define KVCAL_CACHE_FORMATS(row)              \
  row(kFp8PerTokenHead, fp8_per_token_head)   \
  row(kMxfp8, mxfp8)                          \
  row(kInt8, int8)                            \
  row(kInt8PerTokenHead, int8_per_token_head) \
  row(kNvfp4, nvfp4)                          \
  row(kInt4PerTokenHead, int4_per_token_head)

// clang-format on

enum class CacheFormat : uint8_t {
#define KVCAL_ENUMERATOR(enumerator, name) enumerator,
  KVCAL_CACHE_FORMATS(KVCAL_ENUMERATOR)
#undef KVCAL_ENUMERATOR
};

/// x [count], a head of K after RoPE or of V, becomes what attention reads of it. scale: of the
/// head, where the format needs scales.
KVCAL_HD inline void round_trip(CacheFormat format, float* x, int64_t count, float scale) {
  switch (format) {
#define KVCAL_ROUND_TRIP(enumerator, name) \
  case CacheFormat::enumerator:            \
    return cache_formats::name::round_trip(x, count, scale);
    KVCAL_CACHE_FORMATS(KVCAL_ROUND_TRIP)
#undef KVCAL_ROUND_TRIP
  }
}

constexpr const CacheLayout& layout_of(CacheFormat format) {
  switch (format) {
#define KVCAL_LAYOUT(enumerator, name) \
  case CacheFormat::enumerator:        \
    return cache_formats::name::kLayout;
    KVCAL_CACHE_FORMATS(KVCAL_LAYOUT)
#undef KVCAL_LAYOUT
  }
  return cache_formats::int8::kLayout;
}

constexpr std::string_view name_of(CacheFormat format) {
  switch (format) {
#define KVCAL_NAME(enumerator, name) \
  case CacheFormat::enumerator:      \
    return #name;
    KVCAL_CACHE_FORMATS(KVCAL_NAME)
#undef KVCAL_NAME
  }
  return "";
}

/// All of them, in the table's order.
inline constexpr CacheFormat kCacheFormats[] = {
#define KVCAL_ELEMENT(enumerator, name) CacheFormat::enumerator,
    KVCAL_CACHE_FORMATS(KVCAL_ELEMENT)
#undef KVCAL_ELEMENT
};

}  // namespace kvcal
