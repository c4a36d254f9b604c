#include "stored/scales_file.h"

#include "core/folder.h"
#include "quant/scale.h"

namespace kvcal {

std::optional<fs::path> find_scales_file(const fs::path& place, std::string_view name,
                                         std::string_view key) {
  if (is_folder(place)) {
    const fs::path file = place / name;
    return is_there(file) ? std::optional(file) : std::nullopt;
  }
  if (place.extension() != ".json" || !is_there(place)) return std::nullopt;
  if (key.empty()) return place;
  // Not parsed: a file that is no JSON is one that the reader of some format names.
  const std::string text = read_text(place, kScalesFileLimits.max_bytes);
  const bool has_key = text.find('"' + std::string(key) + '"') != std::string::npos;
  return has_key ? std::optional(place) : std::nullopt;
}

Scale scale_of(const Json& value) {
  if (!value.is_number()) fail("expected a number, found ", kind_of(value));
  const Scale scale{value.get<float>()};
  if (!is_usable(scale)) fail("scale ", value.dump(), ", expected ", kUsableScale);
  return scale;
}

}  // namespace kvcal
