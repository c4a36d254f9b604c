#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

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
  int64_t tp_size = 1;              ///< ranks of kv_cache_scales.json
  bool scale_in_model_dtype = false;///< --scale-dtype model: scales rounded to the weights' dtype
};

/// Writes one output format into an existing, empty folder.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Throws Error, before anything is written, when the format cannot hold the calibration (per-head scales in
  /// a format that has one value a layer) naming layer and reason.
  virtual void check(const ExportInput& input) const = 0;
  virtual void write(const ExportInput& input, const std::filesystem::path& folder) const = 0;
};

using MakeWriter = std::unique_ptr<Writer> (*)();
/// Name of --format → maker.
extern const Registry<MakeWriter> kWriters;

/// Throws Error where a layer with attention that is not ignored has no finite, positive scale.
void check_calibration(const Calibration& calibration);

}  // namespace kvcal
