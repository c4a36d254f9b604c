#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "core/json.h"
#include "quant/cache_type.h"

namespace kvcal {

/// The cache for which `kvcal smooth` rewrote a model. The function is the same, but what mends one
/// cache may ruin others.
enum class SmoothedFor : uint8_t {
  kInt8,    ///< uniform codes: INT8 or INT4; no other cache loses by it
  kFp8E4m3  ///< FP8 E4M3 with one scale a layer or head, 1.0 or calibrated; others may be ruined
};
constexpr std::string_view name_of(SmoothedFor cache) {
  return cache == SmoothedFor::kInt8 ? "int8" : "fp8_e4m3";
}
/// The cache with this name, or nullopt.
std::optional<SmoothedFor> find_smoothed_for(std::string_view name);

/// The cache of a manifest's member "smoothing", of any shape; nullopt: none is named.
std::optional<SmoothedFor> smoothed_for(const Json& manifest);
/// The member "smoothing" of the manifest in a model's folder, or beside it, where several formats
/// share one; null where there is none. A manifest
/// that cannot be read has none.
Json smoothing_of_folder(const std::filesystem::path& folder);

/// Whether a cache of this type may lose by that rewrite.
bool may_be_ruined(SmoothedFor made, const CacheType& cache);

}  // namespace kvcal
