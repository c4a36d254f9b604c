#include "stored/smoothed_for.h"

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json_limits.h"
#include "core/replaceable.h"

namespace kvcal {

std::optional<SmoothedFor> find_smoothed_for(std::string_view name) {
  for (const SmoothedFor cache : {SmoothedFor::kInt8, SmoothedFor::kFp8E4m3})
    if (name == name_of(cache)) return cache;
  return std::nullopt;
}

std::optional<SmoothedFor> smoothed_for(const Json& manifest) {
  if (!manifest.is_object()) return std::nullopt;
  const Json smoothing = manifest.value("smoothing", Json());
  if (!smoothing.is_object()) return std::nullopt;
  const Json name = smoothing.value("for", Json());
  return name.is_string() ? find_smoothed_for(name.get<std::string>()) : std::nullopt;
}

Json smoothing_of_folder(const std::filesystem::path& folder) {
  for (const std::filesystem::path& place : {folder, folder.parent_path()}) {
    const std::filesystem::path file = place / kManifestName;
    if (!is_there(file)) continue;
    try {
      const Json manifest = parse_json(read_text(file, kSmallFileLimits.max_bytes));
      return smoothed_for(manifest) ? manifest.at("smoothing") : Json();
    } catch (const SystemError&) {
      throw;
    } catch (const Error&) {
      return nullptr;
    }
  }
  return nullptr;
}

bool may_be_ruined(SmoothedFor made, const CacheType& cache) {
  return made == SmoothedFor::kFp8E4m3 && is_quantized(cache) &&
         (cache.format || cache.dtype == KvDType::kFp8E5m2);
}

}  // namespace kvcal
