// A format is data until it is written. A Writer gives FormatParts: tensors, keys of
// config.json, files, and the dtype of FP8 weights' scales. One place writes folders, so formats
// know nothing of joined formats, linked weights and overlays. A conversion is an ordinary
// write: Conversion turns any checkpoint into a Calibration and a ModelDir without scales.
#pragma once

#include <filesystem>
#include <functional>
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
#include "export/quantization_configs.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "recipe/recipe.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// Description of the quantized weights that the source has and the output keeps, without K and V.
struct SourceQuantization {
  std::string format;            ///< a name of kWriters, or another quant_method
  Json config = nullptr;         ///< quantization_config; null where config.json has none
  Json modelopt_file = nullptr;  ///< hf_quant_config.json; null where there is none
};

/// Input of every writer. Borrows from its owners.
struct ExportInput {
  const ModelDir& model;
  const Calibration& calibration;
  /// Heads and widths of the caches, for formats that hold a scale a channel, or the number of
  /// heads. Must be set for those.
  const ModelConfig* config = nullptr;
  const Recipe* recipe = nullptr;  ///< nullptr: none is written
  /// Ranks of kv_cache_scales.json, and the ranks over which scales of heads are tied.
  int64_t tp_size = 1;
  /// --scale-dtype model: scales rounded to the weights' dtype, and weight codes from quotients in
  /// that dtype, as llm-compressor has them (compressed-tensors only).
  bool scale_in_model_dtype = false;
  ThreadPool* pool = nullptr;                ///< quantizes weights; nullptr: the caller's thread
  Diagnostics* progress = nullptr;           ///< gets the progress of the weights
  const SourceQuantization* kept = nullptr;  ///< nullptr: the plan describes all weights
  /// The scales are for an NVFP4 cache, the same numbers; only formats with holds_nvfp4 say so.
  bool is_nvfp4 = false;
  /// Another format in the same folder holds the plan's FP8 weights.
  bool has_weights_beside = false;
  /// Scales lie in a shard of their own, so that several formats can share the weights.
  bool shares_weights = false;

  const ModelConfig& model_config() const {
    KVCAL_CHECK(config != nullptr);
    return *config;
  }
};

/// Summary of one weight that was written as FP8.
struct WeightSummary {
  std::optional<Amax> amax;  ///< largest magnitude of the weight; none where it was FP8 already
  Scale largest_scale;       ///< as written
  std::vector<Scale> scales = {};  ///< kept with shares_weights
};

/// Facts that a writer learns while it writes.
struct WrittenCheckpoint {
  std::map<std::string, WeightSummary> weights;  ///< by module name
  std::filesystem::path folder = {};             ///< empty: no checkpoint was written
};

/// Additions of a format to the source: everything that an output has and its source lacks.
struct FormatParts {
  std::vector<Tensor> tensors = {};               ///< scales of K, V and queries
  Json config = Json::object();                   ///< keys of config.json and their values
  std::map<std::string, std::string> files = {};  ///< other files: name → content
  const WeightScaleNames* weights = nullptr;  ///< of FP8 weights; nullptr: the format writes none
  bool has_checkpoint = true;                 ///< false: only files are written
};

/// Scales of K and V that an output holds for a layer: one, one a KV head, or one a channel.
struct WrittenScales {
  std::vector<Scale> k, v;
};

/// One output format. docs/formats.md describes the bytes.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Throws Error, before anything is written, where the format cannot hold the calibration; the
  /// message names layer and reason. Includes check_calibration.
  virtual void check(const ExportInput& input) const = 0;
  /// The additions of the format. input has passed check().
  virtual FormatParts parts(const ExportInput& input) const = 0;
  /// Scales that a reader of the output gets for a layer that is not ignored, merged as the format
  /// merges them.
  virtual WrittenScales held(const AttentionCalibration& layer, int64_t tp_size) const = 0;
  /// Notes for the user, a sentence each: values that the format does not keep, and options that an
  /// engine needs.
  virtual std::vector<std::string> notes(const ExportInput&) const { return {}; }

  /// Writes the parts and the model's files into an existing, empty folder. Throws Error. first:
  /// the output of another format of the same run, whose weights are linked; then
  /// input.shares_weights is set.
  WrittenCheckpoint write(const ExportInput& input, const std::filesystem::path& folder,
                          const WrittenCheckpoint* first = nullptr) const;
};

/// One row of the table of formats: its writer, and what an output of the format can hold. Joined
/// folders and conversions decide by these properties, never by a name.
struct OutputFormat {
  std::unique_ptr<Writer> (*make)();
  /// The format adds scales of K and V to weights of any format, and does not describe the weights.
  bool keeps_any_weights = false;
  std::string_view file = {};    ///< the only one, without the model's weights; empty: a checkpoint
  bool holds_heads = false;      ///< a scale of each KV head
  bool holds_queries = false;    ///< scales of queries
  bool holds_ranks = false;      ///< a scale of each tensor-parallel rank
  bool holds_fp8 = true;         ///< scales of an FP8 cache
  bool holds_int8 = false;       ///< scales of an INT8 cache
  bool takes_channels = false;   ///< scales of channels, as they are or merged
  bool holds_nvfp4 = false;      ///< scales of an NVFP4 cache
  bool has_config_file = false;  ///< beside other formats it leaves config.json to them

  bool is_checkpoint() const { return file.empty(); }
};
/// Name of --format → row.
extern const Registry<OutputFormat> kWriters;

/// All names in one phrase, checkpoints first: "compressed-tensors (default), fp8 or scales-json".
std::string list_formats();

/// Throws Error, naming module and head, where a layer that is not ignored lacks a finite, positive
/// scale of K or V (or of Q, where another layer has one), where their number does not fit the
/// strategy, where a static input of the plan has no such scale, or where nothing is quantized.
void check_calibration(const Calibration& calibration);

/// Throws Error, naming the formats that do, where a format, of kWriters, holds no scales of such a
/// cache, or none of channels.
void check_holds(const Calibration& calibration, std::string_view format);

/// check_calibration for a format that holds KV scales and leaves weights as they are. Also throws
/// Error where the plan quantizes weights.
void check_is_kv_only(const Calibration& calibration, std::string_view format);

/// Throws Error where the source's weights are quantized in another format. title
/// ("ModelOpt") names the format in the message.
void check_kept(const ExportInput& input, std::string_view format, std::string_view title);

/// Throws Error where target is the model's folder, lies inside it, or contains it: an output never
/// goes into the source nor replaces it. Call it before the target is made.
void check_target(const ModelDir& model, const std::filesystem::path& target);

/// Splits "compressed-tensors+tgi" into names of kWriters. Throws Error for a name that is unknown,
/// empty or given twice.
std::vector<std::string> joined_names(std::string_view format);

/// Name of a format as one word: the name of its output folder.
std::string format_name(std::string_view format);

/// Whether one of the formats joined in a name has a property: any_has(name,
/// &OutputFormat::holds_queries).
bool any_has(std::string_view format, const std::function<bool(const OutputFormat&)>& property);

/// Makes the writer of a format, or of several joined by '+', which puts all of them into one
/// folder. Throws Error for a name that is unknown or given twice. check() throws for formats that
/// cannot share a folder: both have a quantization_config (ModelOpt beside another keeps only
/// hf_quant_config.json), or they store FP8 weights with different scales.
std::unique_ptr<Writer> make_writer(std::string_view format);

}  // namespace kvcal
