#pragma once

#include <string>
#include <vector>

#include "convert/conversion.h"
#include "core/json.h"

namespace kvcal {

/// Losses of one format of a conversion.
struct FormatLosses {
  std::string format;
  std::vector<LayerLoss> layers;
};

/// Formats that a conversion writes.
struct WrittenFormats {
  std::vector<FormatLosses> losses;
  const Writer* writer = nullptr;  ///< the only one; nullptr: there are several
  int64_t tp_size = 1;
};

/// kvcal_manifest.json of a conversion: the source's, if any, with the new scales, and
/// "conversion": the origin of the scales and the losses of each format (docs/formats.md).
Json conversion_manifest(const Conversion& conversion, const std::string& version,
                         const WrittenFormats& formats);

}  // namespace kvcal
