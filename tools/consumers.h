#pragma once

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "family/architecture.h"

namespace kvcal {

/// Who can make and use KV scales of this model: {"calibration": {"supported", "reason"},
/// "formats": [{"format", "supported", "strategies", "reason", "notes"}], "engines": [{"engine",
/// "version", "format", "reads", "note"}]}. A format's word is its writer's own check.
Json consumers_json(const ModelDir& model_dir, const ModelConfig& config);

}  // namespace kvcal
