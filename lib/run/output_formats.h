#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnostics.h"
#include "core/file.h"
#include "engines/verify.h"
#include "export/writer.h"
#include "quant/cache_type.h"
#include "stored/fp8_checkpoint.h"

namespace kvcal {

/// Labels and texts of one line each, as terminals and model cards show them.
using LabelledLines = std::vector<std::pair<std::string, std::string>>;

/// What the model cards of an output say instead of what its source says; empty: the same.
struct CardNames {
  std::string base_model, license;
};

/// Folder, formats and options of a calibration's output.
struct OutputOptions {
  std::vector<std::string> formats;
  std::vector<std::string> engines;  ///< that must use the scales, as choose_engine takes them
  std::string output;
  std::string scale_dtype = "float32";
  std::string kv_cache_dtype = "fp8_e4m3";
  int64_t tp_size = 1;
  bool overwrite = false;
  bool scales_only = false;
  CardNames card = {};
};
/// Quantized weights of an output.
struct OutputWeights {
  const SourceQuantization* kept = nullptr;         ///< of the source; null: none
  const CheckpointQuantization* weights = nullptr;  ///< of the source; read where kept is
  bool makes_weights = false;                       ///< the output quantizes weights
};
/// Sets the formats where none is given: those that the engines read for such a model, or
/// the form of the kept weights, or compressed-tensors, or scales-json where neither is a format.
/// Throws Error as formats_for does, and for engines beside an overlay, which no engine is given.
void settle_formats(OutputOptions& options, const ModelDir& model, const FamilyChoice& family,
                    const OutputWeights& weights, Diagnostics& diagnostics);

/// Folder of one format in an output.
struct WrittenFolder {
  std::string format;
  fs::path path;  ///< of a format of one file maybe that file
  bool is_overlay = false;
  /// Engines' answers for a checkpoint's scales, found when its card was written.
  std::vector<ServedEngine> engines = {};
};

/// The requested formats, each one or several joined by '+'. Messages begin with "--format NAME".
class OutputFormats {
 public:
  /// Throws Error for a format that is unknown or given twice.
  explicit OutputFormats(OutputOptions options);

  /// Throws Error where a format cannot hold the calibration. Sets the input's options.
  void check(const ExportInput& input) const;
  /// Writes one format into folder itself; several get a folder each and share their weights.
  WrittenCheckpoint write(const ExportInput& input, const std::filesystem::path& folder,
                          int threads, Diagnostics& progress) const;
  /// Reports the notes of all formats, each once.
  void tell_notes(const ExportInput& input, Diagnostics& diagnostics) const;
  std::vector<std::string> notes(size_t index, const ExportInput& input) const;
  /// Folders of the formats in output, which is not visible yet, by the places that they get.
  std::vector<WrittenFolder> placed_folders(const fs::path& output) const;
  fs::path folder_of(const fs::path& output, size_t index) const;
  bool is_for_nvfp4() const;
  /// Whether a format of one file alone is written, and the output is named as it: "x.json".
  bool is_file() const;
  /// Where the output grows: the output's folder, or a hidden place beside the file. Throws Error
  /// where the file exists and may not be replaced.
  fs::path place() const;
  /// Adds the output, of what has grown in output, which is borrowed.
  void stage(AtomicDirectory& output, StagedOutputs& outputs) const;

  const std::vector<std::string>& names() const { return options_.formats; }
  int64_t tp_size() const { return options_.tp_size; }
  const CardNames& card() const { return options_.card; }
  const Writer& writer(size_t index) const { return *writers_[index]; }

 private:
  ExportInput completed(const ExportInput& input) const;
  /// Name of the file of the one format; empty: several formats, or a checkpoint.
  std::string_view only_file() const;

  OutputOptions options_;
  std::vector<std::unique_ptr<Writer>> writers_;
};

/// Sets OutputOptions::kv_cache_dtype to int8 where the plan's scales are INT8's. Throws Error
/// where it names another cache than these are for.
void settle_cache_dtype(std::string& kv_cache_dtype, const QuantPlan& plan);

/// Parses OutputOptions::kv_cache_dtype: of nvfp4 that of its calibration, FP8 E4M3, whose scales
/// are the same numbers. Throws Error for other types than FP8 and NVFP4.
KvDType parse_fp8_cache_dtype(const std::string& name);

}  // namespace kvcal
