#pragma once

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
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
};
/// Returns --output, which is not required yet.
CLI::Option* add_output_options(CLI::App& command, OutputOptions& options);

/// The formats asked for. Messages begin with "--format NAME".
class OutputFormats {
 public:
  /// Throws Error for a format that is unknown or given twice.
  explicit OutputFormats(OutputOptions options);

  /// Throws Error where a format cannot hold the calibration.
  void check(const ModelDir& model, const Calibration& calibration, const Recipe& recipe) const;
  /// One format goes into folder itself, several into a folder each.
  WrittenCheckpoint write(const ModelDir& model, const Calibration& calibration,
                          const Recipe& recipe, const std::filesystem::path& folder, int threads,
                          Diagnostics& progress) const;
  void print_notes(const ModelDir& model, const Calibration& calibration,
                   const Recipe& recipe) const;
  /// "wrote FORMAT: FOLDER", a line each.
  void print_folders() const;

 private:
  ExportInput input(const ModelDir& model, const Calibration& calibration,
                    const Recipe& recipe) const;

  OutputOptions options_;
  std::vector<std::unique_ptr<Writer>> writers_;
};

/// OutputOptions::kv_cache_dtype. Throws Error for one that is not FP8.
KvDType parse_fp8_cache_dtype(const std::string& name);

/// The calibration of a plan with scale 1.0 everywhere: a format that cannot hold it can hold none
/// of that plan.
Calibration planned_calibration(const QuantPlan& plan, const ModelConfig& config, KvDType kv_dtype);

/// A table of the attention modules, and of the inputs of Linears where there are any; then how
/// many weights were written.
void print_calibration(const Calibration& calibration, const WrittenCheckpoint& written);

}  // namespace kvcal
