#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "core/file.h"
#include "export/writer.h"

namespace kvcal {

/// Options of commands that write a calibration.
struct OutputOptions {
  std::vector<std::string> formats;  ///< empty: the command's default
  std::string output;
  std::string scale_dtype = "float32";
  std::string kv_cache_dtype = "fp8_e4m3";
  int64_t tp_size = 1;
  bool overwrite = false;
  bool scales_only = false;
};
/// Returns --output, which is not required yet.
CLI::Option* add_output_options(CLI::App& command, OutputOptions& options);
/// Of add_output_options those that say where an output goes and what of it: --output, --tp-size,
/// --scales-only, --overwrite.
CLI::Option* add_target_options(CLI::App& command, OutputOptions& options);

/// The formats asked for, each one or several joined by '+'. Messages begin with "--format NAME".
class OutputFormats {
 public:
  /// Throws Error for a format that is unknown or given twice. option: what names them.
  explicit OutputFormats(OutputOptions options, std::string option = "--format");

  /// Throws Error where a format cannot hold the calibration. The input's options are set here.
  void check(const ExportInput& input) const;
  /// One format goes into folder itself, several into a folder each, which share their weights.
  WrittenCheckpoint write(const ExportInput& input, const std::filesystem::path& folder,
                          int threads, Diagnostics& progress) const;
  void print_notes(const ExportInput& input) const;
  /// "wrote FORMAT: FOLDER", a line each; behind joined formats, which engines they serve.
  void print_folders(const ModelConfig& config) const;

  const std::vector<std::string>& names() const { return options_.formats; }
  const Writer& writer(size_t index) const { return *writers_[index]; }

 private:
  ExportInput completed(const ExportInput& input) const;
  fs::path folder_of(const fs::path& output, size_t index) const;

  OutputOptions options_;
  std::string option_;
  std::vector<std::unique_ptr<Writer>> writers_;
};

/// The source's FP8 weights where it is one that is calibrated as it is (DeepSeek's form).
std::optional<KeptQuantization> kept_weights(const ModelDir& model, const ModelConfig& config);

/// OutputOptions::kv_cache_dtype. Throws Error for one that is not FP8.
KvDType parse_fp8_cache_dtype(const std::string& name);

/// The calibration of a plan with scale 1.0 everywhere: a format that cannot hold it can hold none
/// of that plan.
Calibration planned_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype);

/// A table of the attention modules, and of the inputs of Linears where there are any; then how
/// many weights were written.
void print_calibration(const Calibration& calibration, const WrittenCheckpoint& written);

}  // namespace kvcal
