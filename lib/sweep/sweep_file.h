#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/gsm8k.h"
#include "eval/sequences.h"
#include "quant/cache_type.h"
#include "recipe/recipe.h"

namespace kvcal {

/// A model of a sweep, by the name its cells have.
struct SweepModel {
  std::string name;
  std::filesystem::path path;
};

/// A recipe of a sweep. The parts that it quantizes decide which cells differ by it.
struct SweepRecipe {
  std::string name;
  Recipe recipe;
};

/// The origin of an FP8 cache's scales.
struct ScaleSource {
  enum class Kind {
    kCalibrated,  ///< the recipe's
    kUnit,        ///< 1.0 everywhere
    kCheckpoint,  ///< those the model's own folder has
    kFile,        ///< those of another place
  };
  Kind kind = Kind::kCalibrated;
  std::string name = {};  ///< "calibrated", "unit", "checkpoint", or the file's, without ending
  std::filesystem::path path = {};  ///< of a file
};

/// The values each dimension takes; every combination is meant. Indices are into SweepFile's lists.
struct SweepGrid {
  std::vector<size_t> models = {};
  std::vector<std::optional<size_t>> recipes = {};  ///< nullopt: the weights as they are
  /// nullopt: "auto", the model's own dtype
  std::vector<std::optional<CacheType>> kv_cache_dtypes = {KvDType::kFp8E4m3};
  std::vector<size_t> scales = {};
  std::vector<std::string> kv_forward = {"quantized"};  ///< or "exact"
  std::vector<int64_t> num_calibration_samples = {512};
  std::vector<std::optional<uint64_t>> shuffle_seeds = {std::nullopt};  ///< nullopt: not shuffled
};

/// The text that scales are made of.
struct SweepCalibration {
  std::filesystem::path dataset;
  RecordOptions records = {};
  int64_t max_seq_length = 2048;
};

/// The text that cells are scored on.
struct SweepEvaluation : SequenceOptions {
  std::filesystem::path dataset;
};

/// Axes of the Pareto picture: keys of kCellMetrics.
struct ParetoAxes {
  std::string x = "bytes_per_token", y = "kl_mean";
};

/// A sweep as its file says it.
struct SweepFile {
  std::string name;
  std::vector<SweepModel> models;
  std::vector<SweepRecipe> recipes;
  std::vector<ScaleSource> scales;
  std::vector<SweepGrid> grids;
  std::optional<SweepCalibration> calibration;  ///< there where a grid needs it
  SweepEvaluation evaluation = SweepEvaluation();
  /// Word problems that cells answer, where they are asked for. model_folder is each cell's.
  std::optional<GsmOptions> gsm8k;
  std::string compute_dtype = "auto";
  bool keep_checkpoints = false;
  ParetoAxes pareto;
};

/// Parses the text of a sweep in YAML (docs/sweep.md). folder: what relative paths in it start
/// from. Recipes are read, nothing else. Throws Error with line and column for what is not
/// understood, a name or value that stands for nothing, and more combinations than a sweep may
/// have.
SweepFile parse_sweep(std::string_view text, const std::filesystem::path& folder);

/// parse_sweep of a file, with its path in front of any message.
SweepFile read_sweep(const std::filesystem::path& path);

}  // namespace kvcal
