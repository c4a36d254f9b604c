#pragma once

#include <filesystem>
#include <string_view>

#include "checkpoint/model_dir.h"
#include "engines/engine_rules.h"
#include "engines/scale_loading.h"
#include "engines/verify_report.h"
#include "family/model_config.h"

namespace kvcal {

/// Reports how an engine loads a checkpoint's KV scales, by rules that were read from its source or
/// seen when it ran (engines/), apart from our own readers and writers. config is the model's,
/// which names its attention modules. Throws Error for a file that cannot be read and for skipped
/// layers that do not attend; errors in the scales are findings.
VerifyReport verify_engine(const ModelDir& model_dir, const ModelConfig& config,
                           std::string_view engine, const VerifyOptions& options);

/// verify_engine of a folder, with the files that the engine would load, which may be others than
/// kvcal's own: a finding where those that it leaves out hold scales.
VerifyReport verify_checkpoint(const std::filesystem::path& path, std::string_view engine,
                               const VerifyOptions& options);

}  // namespace kvcal
