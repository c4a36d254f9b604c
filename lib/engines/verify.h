#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "engines/engine_rules.h"
#include "family/model_config.h"

namespace kvcal {

/// kError: a scale in the checkpoint would be lost or become another, or the engine refuses it.
/// kWarning: 1.0 where nothing was calibrated, clipping, one value for K and V. kNote: what the
/// engine has to be told.
enum class Severity : uint8_t { kError, kWarning, kNote };
std::string_view name_of(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  std::vector<int64_t> layers;  ///< ascending; empty: not of certain layers
  std::string message, remedy;  ///< remedy: what to do, or empty
};

/// One scale as an engine holds it.
struct EngineScale {
  std::vector<float> values{1.0f};  ///< one, or one a head (a rank, from kv_cache_scales.json)
  std::string source;               ///< the tensor or file it came from; empty: the default
};

struct EngineLayer {
  int64_t layer = 0;
  EngineScale k, v;
  bool is_16_bit = false;  ///< the engine is told to leave this layer's cache in 16 bits
};

/// The result of one engine that loads a checkpoint.
struct VerifyReport {
  std::string engine, version;
  std::string run_on = {};     ///< the day on which the version was run; empty: it was not
  std::string kv_cache_dtype;  ///< the engine's word; "auto" where it keeps the model's 16 bits
  bool loads = true;           ///< false: it refuses the checkpoint, and holds nothing
  bool is_known = true;        ///< false: the engine was not run with such models
  std::vector<EngineLayer> layers;
  std::vector<Finding> findings;  ///< errors first, then warnings, notes; each in layer order
};

/// Whether a scale would be lost: any finding that is an error.
bool loses_scales(const VerifyReport& report);

/// Whether the engine holds any scale of the checkpoint, or of a file beside it.
bool holds_scales(const VerifyReport& report);

/// Whether it makes codes of K and V; a cache of 16 bits has no use for scales.
bool has_quantized_cache(const VerifyReport& report);

/// {"engine", "engine_version", "run_on", "kv_cache_dtype", "loads", "layers": [{"layer",
/// "k_scale", "v_scale", "k_source", "v_source"}], "findings": [{"severity", "layer", "layers",
/// "message", "remedy"}]}. run_on: the day on which that version was run, null where it was not. A
/// scale is a number, a list for heads, or "nan", "inf", "-inf"; a source is a tensor, "default",
/// or "16 bits" where the engine is told to leave the layer unquantized; layer is a text of ranges
/// ("0-4, 7"), null where the finding is of no layer.
Json report_json(const VerifyReport& report);

/// Findings as a checker makes them: the same words of further layers join the first.
class Findings {
 public:
  void add(Severity severity, std::string message, std::string remedy = {});
  void add(int64_t layer, Severity severity, std::string message, std::string remedy = {});
  /// Errors first, then warnings and notes; in each by the first layer, in the order they came.
  std::vector<Finding> ranked() &&;

 private:
  std::vector<Finding> findings_;
};

/// The user's options for an engine, and the platform that runs it.
struct VerifyOptions {
  std::string kv_cache_dtype = "auto";
  bool is_rocm = false;  ///< a platform that stores E4M3 as FNUZ (MI300)
  int64_t tp_size = 1;
  std::filesystem::path scales;  ///< a kv_cache_scales.json beside the checkpoint; empty: none
  std::vector<int64_t> skip_layers = {};  ///< whose caches it is told to leave in 16 bits
  FamilyChoice family = {};               ///< of a model_type that is not known
};

/// Reports how an engine loads a checkpoint's KV scales, by rules that were read from its source or
/// seen when it ran (engines/), apart from our own readers and writers. It reads the files that the
/// engine would load, which may be others than kvcal's: a finding where those that it leaves out
/// hold scales. Throws Error for a file that cannot be read and for skipped layers that do not
/// attend; errors in the scales are findings.
VerifyReport verify_checkpoint(const std::filesystem::path& path, std::string_view engine,
                               const VerifyOptions& options);

/// The outcome of KV scales in an engine. kNotKnown: it was not run with such a model.
enum class LoadOutcome : uint8_t { kLoaded, kNotKnown, kLost, kRefused };
std::string_view name_of(LoadOutcome outcome);

/// An answer of an engine for the KV scales of an output.
struct ServedEngine {
  std::string name;   ///< as asked for: "vllm", "vllm@0.33"
  std::string title;  ///< as EngineChoice::title()
  LoadOutcome outcome = LoadOutcome::kLost;
  /// kLoaded, kNotKnown: the command that serves the folder, or the settings that it needs; else
  /// the reason, and a format that it reads.
  std::string note;
  std::string note_inside = {};  ///< the same of a command that runs in the folder
  bool is_used = false;          ///< by the rules, whether the engine was run or not
};

/// Titles of the engines with one of these outcomes, with commas; empty: none.
std::string titles_of(const std::vector<ServedEngine>& engines,
                      std::initializer_list<LoadOutcome> outcomes);

/// A checkpoint as an engine is given it.
struct ServedFolder {
  std::filesystem::path checkpoint;
  std::filesystem::path scales = {};  ///< a kv_cache_scales.json; empty: that of the folder, if any
  std::filesystem::path shown = {};   ///< name of checkpoint in commands; empty: its path
  std::vector<ServedEngine> known = {};  ///< answers for this folder that are not asked for again
};

/// Each engine's answer, as verify_checkpoint has it: for the first of the folders whose scales
/// it uses, with the arguments that it needs; where it uses none, for the first. engines: names as
/// choose_engine takes them. Throws Error as verify_checkpoint.
std::vector<ServedEngine> served_engines(const std::vector<ServedFolder>& folders,
                                         const ModelConfig& config,
                                         const std::vector<std::string>& engines, int64_t tp_size);

}  // namespace kvcal
