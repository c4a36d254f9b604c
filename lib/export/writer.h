#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "core/parallel.h"
#include "core/registry.h"
#include "export/weight_forms.h"
#include "quant/calibration.h"
#include "recipe/recipe.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// Quantized weights that the source has and the output keeps: what its files say of them, nothing
/// of K and V.
struct KeptQuantization {
  std::string format;            ///< whose form it is, a name of kWriters; or another quant_method
  Json config = nullptr;         ///< quantization_config; null where config.json has none
  Json modelopt_file = nullptr;  ///< hf_quant_config.json; null where there is none
};

/// What every writer is given. Borrows from its owners.
struct ExportInput {
  const ModelDir& model;
  const Calibration& calibration;
  const Recipe* recipe = nullptr;  ///< written beside where there is one
  /// Ranks of kv_cache_scales.json; over which the scales of heads are tied.
  int64_t tp_size = 1;
  /// --scale-dtype model: scales rounded to the weights' dtype, and weight codes from quotients in
  /// that dtype, as llm-compressor has them (compressed-tensors only).
  bool scale_in_model_dtype = false;
  ThreadPool* pool = nullptr;              ///< quantizes weights; nullptr: the caller's thread
  Diagnostics* progress = nullptr;         ///< told how far the weights are
  const KeptQuantization* kept = nullptr;  ///< nullptr: the plan says all of the weights
  /// Another format of the same folder holds the FP8 weights that the plan makes.
  bool has_weights_beside = false;
  /// Scales lie in a shard of their own, so that other formats have the same weights.
  bool shares_weights = false;
};

/// Of one weight that was written as FP8.
struct WeightSummary {
  std::optional<Amax> amax;  ///< largest magnitude of the weight; none where it was FP8 already
  Scale largest_scale;       ///< of all of its scales, as written
  std::vector<Scale> scales = {};  ///< kept with shares_weights
};

/// What a writer found out while it wrote.
struct WrittenCheckpoint {
  std::map<std::string, WeightSummary> weights;  ///< by module name
  std::filesystem::path folder = {};             ///< empty: it has no checkpoint
};

/// What a format makes of a calibration: all that an output has and its source has not.
struct FormatParts {
  std::vector<Tensor> tensors = {};               ///< scales of K, V and queries
  Json config = Json::object();                   ///< keys of config.json and their values
  std::map<std::string, std::string> files = {};  ///< other files: name → content
  const WeightForm* weights = nullptr;            ///< of FP8 weights; nullptr: writes none
  bool has_checkpoint = true;                     ///< false: the files are all there is
};

/// Scales of K and V that an output has of a layer: one, or one a KV head.
struct HeldScales {
  std::vector<Scale> k, v;
};

/// One output format. docs/formats.md has the bytes.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Throws Error, before anything is written, when the format cannot hold the calibration, naming
  /// layer and reason. Includes check_calibration.
  virtual void check(const ExportInput& input) const = 0;
  /// The input is one that check() lets pass.
  virtual FormatParts parts(const ExportInput& input) const = 0;
  /// What a reader of the output finds for a layer that is not ignored: in which number, and how
  /// far merged.
  virtual HeldScales held(const AttentionCalibration& layer, int64_t tp_size) const = 0;
  /// What the format does not keep and what an engine must be told, a sentence each, for the user.
  virtual std::vector<std::string> notes(const ExportInput&) const { return {}; }

  /// Puts the parts and the model's files into an existing, empty folder. Throws Error. first: what
  /// another format of the same run wrote, whose weights are linked; input.shares_weights is set
  /// then.
  WrittenCheckpoint write(const ExportInput& input, const std::filesystem::path& folder,
                          const WrittenCheckpoint* first = nullptr) const;
};

/// One row of the table of formats: its writer, and what an output of the format can hold. Joined
/// folders and conversions decide by these properties, never by a name.
struct OutputFormat {
  std::unique_ptr<Writer> (*make)();
  /// The format adds scales of K and V to whatever the weights are, and says nothing of them.
  bool keeps_any_weights = false;
  bool is_checkpoint = true;     ///< false: one file, without the model's weights
  bool holds_heads = false;      ///< a scale of each KV head
  bool holds_queries = false;    ///< scales of queries
  bool holds_ranks = false;      ///< a scale of each tensor-parallel rank
  bool has_config_file = false;  ///< beside other formats it leaves config.json to them
};
/// Name of --format → row.
extern const Registry<OutputFormat> kWriters;

/// All names in one phrase, checkpoints first: "compressed-tensors (default), fp8 or scales-json".
std::string list_formats();

/// Throws Error, naming module and head, where a layer that is not ignored lacks a finite, positive
/// scale of K or V (or of Q, where another layer has one), where their number does not fit the
/// strategy, where a static input of the plan has no such scale, or where nothing is quantized.
void check_calibration(const Calibration& calibration);

/// check_calibration for a format that holds KV scales and leaves weights as they are: those that
/// the plan quantizes are an Error that says so of format.
void check_is_kv_only(const Calibration& calibration, std::string_view format);

/// Throws Error where the source's weights are quantized in another form than format, which
/// title's ("ModelOpt") checkpoints do not hold.
void check_kept(const ExportInput& input, std::string_view format, std::string_view title);

/// Throws Error where target is the model's folder, lies inside it, or holds it: no output goes
/// into the source, nor replaces it. Call before the target is made.
void check_target(const ModelDir& model, const std::filesystem::path& target);

}  // namespace kvcal
