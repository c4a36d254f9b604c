#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "core/parallel.h"
#include "core/registry.h"
#include "quant/calibration.h"
#include "recipe/recipe.h"

namespace kvcal {

/// What every writer is given. Borrows from its owners.
struct ExportInput {
  const ModelDir& model;
  const Calibration& calibration;
  const Recipe& recipe;
  /// Ranks of kv_cache_scales.json; over which the scales of heads are tied.
  int64_t tp_size = 1;
  /// --scale-dtype model: scales rounded to the weights' dtype, and weight codes from quotients in
  /// that dtype, as llm-compressor has them (compressed-tensors only).
  bool scale_in_model_dtype = false;
  ThreadPool* pool = nullptr;       ///< quantizes weights; nullptr: the caller's thread
  Diagnostics* progress = nullptr;  ///< told how far the weights are
};

/// Of one weight that was written as FP8.
struct WeightSummary {
  Amax amax;            ///< largest magnitude of the weight
  Scale largest_scale;  ///< of all of its scales, as written
};

/// What a writer found out while it wrote.
struct WrittenCheckpoint {
  std::map<std::string, WeightSummary> weights;  ///< by module name
};

/// Writes one output format into an existing, empty folder. docs/formats.md has the bytes.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Throws Error, before anything is written, when the format cannot hold the calibration, naming
  /// layer and reason. Includes check_calibration.
  virtual void check(const ExportInput& input) const = 0;
  /// Throws Error. The input is one that check() lets pass.
  virtual WrittenCheckpoint write(const ExportInput& input,
                                  const std::filesystem::path& folder) const = 0;
  /// What the format does not keep and what an engine must be told, a sentence each, for the user.
  virtual std::vector<std::string> notes(const ExportInput&) const { return {}; }
};

using MakeWriter = std::unique_ptr<Writer> (*)();
/// Name of --format → maker.
extern const Registry<MakeWriter> kWriters;

/// Throws Error, naming module and head, where a layer that is not ignored lacks a finite, positive
/// scale of K or V (or of Q, where another layer has one), where their number does not fit the
/// strategy, where a static input of the plan has no such scale, or where nothing is quantized.
void check_calibration(const Calibration& calibration);

/// check_calibration for a format that holds KV scales and leaves weights as they are: those that
/// the plan quantizes are an Error that says so of format.
void check_is_kv_only(const Calibration& calibration, std::string_view format);

/// Throws Error where target is the model's folder, lies inside it, or holds it: no output goes
/// into the source, nor replaces it. Call before the target is made.
void check_target(const ModelDir& model, const std::filesystem::path& target);

}  // namespace kvcal
