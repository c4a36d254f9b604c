#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// Writer of a format that is one JSON file of KV scales beside a model, which stays as it is.
class ScalesFileWriter : public Writer {
 public:
  /// format: as --format names it. file: its name in the output's folder.
  ScalesFileWriter(std::string_view format, std::string_view file) : format_(format), file_(file) {}

  /// Throws Error where the calibration has no KV scales, does not cover the model, leaves layers
  /// out, or has scales of an FP8 format that the file does not hold.
  void check(const ExportInput& input) const override;
  /// The file alone.
  FormatParts parts(const ExportInput& input) const override;
  /// Notes of the format, and on values that the file does not keep.
  std::vector<std::string> notes(const ExportInput& input) const override;

 protected:
  /// Throws Error as Writer::check, for what only this format lacks.
  virtual void check_file(const ExportInput& input) const = 0;
  /// Content of the file. input has passed check().
  virtual Json content(const ExportInput& input) const = 0;
  /// Notes of this format alone.
  virtual std::vector<std::string> file_notes(const ExportInput&) const { return {}; }
  /// Of FP8 caches, the formats whose scales the file may hold.
  virtual std::vector<fp8::Format> formats() const { return {fp8::Format::kE4m3Fn}; }

  /// Throws Error where a layer of the model has no attention: the file has a place for each.
  void check_has_every_layer(const Calibration& calibration) const;
  const std::string& file() const { return file_; }

 private:
  std::string format_, file_;
};

}  // namespace kvcal
