#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/file.h"
#include "export/writer.h"
#include "quant/kv_dtype.h"

namespace kvcal {

/// The output of a calibration: where it goes, and in which form.
struct OutputOptions {
  std::vector<std::string> formats;
  std::string output;
  std::string scale_dtype = "float32";
  std::string kv_cache_dtype = "fp8_e4m3";
  int64_t tp_size = 1;
  bool overwrite = false;
  bool scales_only = false;
};
/// A folder that an output has for a format.
struct WrittenFolder {
  std::string format;
  fs::path path;
  bool is_overlay = false;
};

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
  /// Notes of all formats, each once.
  void tell_notes(const ExportInput& input, Diagnostics& diagnostics) const;
  /// Where the formats lie in the output, which is written.
  std::vector<WrittenFolder> folders() const;

  const std::vector<std::string>& names() const { return options_.formats; }
  const Writer& writer(size_t index) const { return *writers_[index]; }

 private:
  ExportInput completed(const ExportInput& input) const;
  fs::path folder_of(const fs::path& output, size_t index) const;

  OutputOptions options_;
  std::string option_;
  std::vector<std::unique_ptr<Writer>> writers_;
};

/// OutputOptions::kv_cache_dtype. Throws Error for one that is not FP8.
KvDType parse_fp8_cache_dtype(const std::string& name);

}  // namespace kvcal
