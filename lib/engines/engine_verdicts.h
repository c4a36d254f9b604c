#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "engines/engine_rules.h"
#include "family/model_config.h"

namespace kvcal {

std::string_view name_of(Reads reads);

/// The verdict on one engine, one format and one model.
struct EngineVerdict {
  std::string_view name;             ///< of engine_rules()
  std::string_view engine, version;  ///< its title, and the version
  std::string_view run_on = {};      ///< the day on which that was run; empty: it was not
  std::string_view format;
  Reads reads = Reads::kNotKnown;
  std::string_view note;
  /// A file that the engine takes beside a checkpoint with scales, too, which serves other engines.
  bool goes_beside_scales = false;
  bool is_of_int8 = false;  ///< as EngineFormat has it
};

/// For every format of an engine; model_type: that of config.json, of a multimodal checkpoint the
/// outer one. has_weights: of checkpoints with quantized weights, which formats without a
/// quantization_config do not hold.
std::vector<EngineVerdict> engine_verdicts(const EngineChoice& choice, std::string_view model_type,
                                           bool has_weights = false);
/// The same of the newest version of every engine.
std::vector<EngineVerdict> engine_verdicts(std::string_view model_type, bool has_weights = false);

/// The format of checkpoints of a type whose scales the engine uses, its usual one where it uses
/// those of several, and where that is not known; empty: it uses those of none.
std::string_view read_format(const EngineChoice& choice, std::string_view model_type,
                             bool has_weights = false);

/// "vLLM 0.33 (run 2026-11-28)".
std::string title_of(const EngineVerdict& verdict);
/// {"engine", "version", "run_on", "format", "reads", "note"}; run_on: null where it was not run.
Json verdict_json(const EngineVerdict& verdict);

// The serving engines, and what each of them reads, as `kvcal engines` prints it. model_type: of
// config.json; empty: all engines, without what they read.

Json engines_json(const std::string& model_type);
/// Lines for a terminal.
std::string engines_text(const std::string& model_type);
/// The table of docs/models.md, one row a model_type: the formats of which each engine uses the
/// scales.
std::string engines_markdown();

/// A checkpoint to be written.
struct PlannedCheckpoint {
  std::string_view model_type;
  bool has_weights = false;             ///< quantized ones, too
  const Json* json = nullptr;           ///< config.json; nullptr: only the type is known
  const ModelConfig* config = nullptr;  ///< that of json
};

/// The fewest formats, as --format names them, of which each engine ("vllm", "sglang@0.5.23") uses
/// the KV scales of such a checkpoint; "compressed-tensors+scales-json" where the engine takes
/// kv_cache_scales.json beside a checkpoint with scales. Warns of an engine that was not run with
/// such models. Throws Error for an engine that reads no format, with the reason and the engines
/// that read one, and for one that refuses the model.
std::vector<std::string> formats_for(const std::vector<std::string>& engines,
                                     const PlannedCheckpoint& planned, Diagnostics& diagnostics);

}  // namespace kvcal
