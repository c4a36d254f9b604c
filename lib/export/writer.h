#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/registry.h"
#include "quant/calibration.h"
#include "recipe/recipe.h"

namespace kvcal {

/// What every writer is given. Borrows from its owners.
struct ExportInput {
  const ModelDir& model;
  const Calibration& calibration;
  const Recipe& recipe;
  int64_t tp_size = 1;  ///< ranks of kv_cache_scales.json
  /// --scale-dtype model: scales rounded to the weights' dtype (compressed-tensors only).
  bool scale_in_model_dtype = false;
};

/// Writes one output format into an existing, empty folder. docs/formats.md has the bytes.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Throws Error, before anything is written, when the format cannot hold the calibration, naming
  /// layer and reason. Includes check_calibration.
  virtual void check(const ExportInput& input) const = 0;
  /// Throws Error. The input is one that check() lets pass.
  virtual void write(const ExportInput& input, const std::filesystem::path& folder) const = 0;
  /// What the format does not keep and what an engine must be told, a sentence each, for the user.
  virtual std::vector<std::string> notes(const ExportInput&) const { return {}; }
};

using MakeWriter = std::unique_ptr<Writer> (*)();
/// Name of --format → maker.
extern const Registry<MakeWriter> kWriters;

/// Throws Error, naming module and head, where a layer that is not ignored lacks a finite, positive
/// scale of K or V, where their number does not fit the strategy, or where no layer has any.
void check_calibration(const Calibration& calibration);

/// Throws Error where target is the model's folder, lies inside it, or holds it: no output goes
/// into the source, nor replaces it. Call before the target is made.
void check_target(const ModelDir& model, const std::filesystem::path& target);

}  // namespace kvcal
