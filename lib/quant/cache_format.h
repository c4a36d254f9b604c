// Formats of KV caches whose codes kvcal does not keep, a namespace each in cache_formats: what an
// engine reads of what it stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/cache_formats/ds_mla.h"
#include "quant/cache_formats/fp4_mx_block16.h"
#include "quant/cache_formats/fp8_per_token_head.h"
#include "quant/cache_formats/int4_per_token_head.h"
#include "quant/cache_formats/int8.h"
#include "quant/cache_formats/int8_per_token_head.h"
#include "quant/cache_formats/mxfp8.h"
#include "quant/cache_formats/nvfp4.h"
#include "quant/cache_formats/nvfp4_4over6.h"
#include "quant/cache_formats/octave.h"
#include "quant/cache_formats/turboquant.h"
#include "quant/cache_formats/ultraquant_4bit.h"

namespace kvcal {

// clang-format off

/// Calls row(enumerator, name) for each format. name is the engine's, and that of the namespace.
#define KVCAL_CACHE_FORMATS(row)                \
  row(kFp8PerTokenHead, fp8_per_token_head)     \
  row(kMxfp8, mxfp8)                            \
  row(kInt8, int8)                              \
  row(kInt8PerTokenHead, int8_per_token_head)   \
  row(kNvfp4, nvfp4)                            \
  row(kNvfp4FourOverSix, nvfp4_4over6)          \
  row(kFp4MxBlock16, fp4_mx_block16)            \
  row(kInt4PerTokenHead, int4_per_token_head)   \
  row(kTurboquantK8V4, turboquant_k8v4)         \
  row(kTurboquant4Bit, turboquant_4bit_nc)      \
  row(kTurboquantK3V4, turboquant_k3v4_nc)      \
  row(kTurboquant3Bit, turboquant_3bit_nc)      \
  row(kOctaveK3V4, octave_k3v4)                 \
  row(kOctaveK3V3, octave_k3v3)                 \
  row(kOctaveCompact, octave_k3v3_compact)      \
  row(kUltraquant4Bit, ultraquant_4bit)         \
  row(kFp8DsMla, fp8_ds_mla)                    \
  row(kNvfp4DsMla, nvfp4_ds_mla)

// clang-format on

enum class CacheFormat : uint8_t {
#define KVCAL_ENUMERATOR(enumerator, name) enumerator,
  KVCAL_CACHE_FORMATS(KVCAL_ENUMERATOR)
#undef KVCAL_ENUMERATOR
};

/// The head becomes what attention reads of it.
KVCAL_HD inline void round_trip(CacheFormat format, const CachedHead& head) {
  switch (format) {
#define KVCAL_ROUND_TRIP(enumerator, name) \
  case CacheFormat::enumerator:            \
    return cache_formats::name::round_trip(head);
    KVCAL_CACHE_FORMATS(KVCAL_ROUND_TRIP)
#undef KVCAL_ROUND_TRIP
  }
}

/// Finite values of the head that codes with the given scales clip; 0 of formats whose tokens make
/// their own.
KVCAL_HD inline int64_t count_clipped(CacheFormat format, const CachedHead& head) {
  return format == CacheFormat::kInt8 ? cache_formats::int8::count_clipped(head) : 0;
}

/// Name and storage of each format, in the table's order.
struct CacheFormatRow {
  std::string_view name;
  CacheLayout layout;
};
inline constexpr CacheFormatRow kCacheFormatRows[] = {
#define KVCAL_FORMAT_ROW(enumerator, name) {#name, cache_formats::name::kLayout},
    KVCAL_CACHE_FORMATS(KVCAL_FORMAT_ROW)
#undef KVCAL_FORMAT_ROW
};

constexpr const CacheLayout& layout_of(CacheFormat format) {
  return kCacheFormatRows[static_cast<size_t>(format)].layout;
}

constexpr std::string_view name_of(CacheFormat format) {
  return kCacheFormatRows[static_cast<size_t>(format)].name;
}

/// All of them, in the table's order.
inline constexpr CacheFormat kCacheFormats[] = {
#define KVCAL_ELEMENT(enumerator, name) CacheFormat::enumerator,
    KVCAL_CACHE_FORMATS(KVCAL_ELEMENT)
#undef KVCAL_ELEMENT
};

}  // namespace kvcal
