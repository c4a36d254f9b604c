#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "quant/stop_rule.h"
#include "report/checkpoint_report.h"

/// What reports take from a manifest. Manifests may come from strangers: all throw Error naming the
/// key of what is not as we write it.
namespace kvcal {

/// A number, or a list of them; empty for neither. Throws Error for anything else, negative numbers
/// and those that are not finite, too.
std::vector<float> magnitudes(const Json& object, const std::string& key);

/// K ("k") or V of a layer: scales from row, the rest from what the manifest says of the layer,
/// which may be null.
report::CacheTensor cache_tensor(const Json& row, const Json* seen, const std::string& side);

/// How a calibration that could end early ended; nullopt where it could not.
std::optional<StopOutcome> stop_outcome(const Json& manifest);

}  // namespace kvcal
