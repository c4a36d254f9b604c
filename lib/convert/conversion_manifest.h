#pragma once

#include <string>
#include <vector>

#include "convert/conversion.h"
#include "core/json.h"

namespace kvcal {

/// What each format of a conversion loses.
struct FormatLosses {
  std::string format;
  std::vector<LayerLoss> layers;
};

/// What a conversion writes.
struct WrittenFormats {
  std::vector<FormatLosses> losses;
  const Writer* writer = nullptr;  ///< the only one; nullptr: there are several
  int64_t tp_size = 1;
};

/// kvcal_manifest.json of a conversion: the source's, where it has one, with the scales as they are
/// now, and "conversion", which says where they came from and what each format lost
/// (docs/formats.md).
Json conversion_manifest(const Conversion& conversion, const std::string& version,
                         const WrittenFormats& formats);

}  // namespace kvcal
