#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "engines/engine_rules.h"
#include "engines/served_engines.h"
#include "family/architecture.h"

namespace kvcal {

/// Whether an output format can hold scales of a model.
struct FormatSupport {
  std::string format;
  std::vector<std::string> strategies =
      {};  ///< those it can hold; empty: none, for the reason below
  std::string reason = {};
  bool is_known = true;  ///< false: the reason is that values were not fetched (RemoteCheckpoint)
  std::vector<std::string> notes = {};  ///< of its writer
};

/// The programs that can make and use KV scales of a model.
struct Consumers {
  std::string calibration_refusal;  ///< empty: it can be calibrated
  std::vector<FormatSupport> formats;
  std::vector<EngineVerdict> engines;     ///< of the formats, for models of the type
  std::vector<ServedEngine> served = {};  ///< of the checkpoint's own scales; empty: it has none
};
/// A format's answer is that of convert where the checkpoint has KV scales, else that of its writer
/// for new ones. An engine's answer for scales that are there is verify's.
Consumers consumers_of(const ModelDir& model_dir, const ModelConfig& config);

/// {"calibration": {"supported", "reason"}, "formats": [{"format", "supported" (null: not known),
/// "strategies", "reason", "notes"}], "engines": [{"engine", "version", "format", "reads",
/// "note"}], "served": [{"engine", "title", "fate", "note"}]}
Json consumers_json(const Consumers& consumers);

}  // namespace kvcal
