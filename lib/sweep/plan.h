#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "family/family_choice.h"
#include "sweep/sweep_file.h"

namespace kvcal {

/// One exact forward pass, whose statistics serve every recipe. Indices, here and below, are into
/// the lists of the SweepFile and the SweepPlan.
struct Observation {
  size_t model = 0;
  int64_t num_samples = 0;
  std::optional<uint64_t> seed;
  bool observes_all = false;     ///< queries and inputs of Linears too, which some recipe needs
  std::string fingerprint = {};  ///< of what determines its result, hex; set by add_fingerprints
};

/// The scales, and FP8 weights, that a recipe makes of a model.
struct PlannedCalibration {
  size_t model = 0, recipe = 0;
  /// Dtype of K and V; nullopt: the recipe's part for them is left out.
  std::optional<KvDType> kv_cache_dtype = {};
  std::optional<std::string> kv_forward = {};  ///< where K and V are quantized
  std::optional<int64_t> num_samples = {};     ///< nullopt: needs no text
  std::optional<uint64_t> seed = {};
  bool makes_checkpoint = false;  ///< FP8 weights, which cells run
  std::optional<size_t> observation =
      {};  ///< whose statistics it is derived from; nullopt: runs itself
  std::string fingerprint = {};

  bool operator==(const PlannedCalibration&) const = default;
};

/// One row of the table. Coordinates that change nothing are absent.
struct Cell {
  std::string id;  ///< "SmolLM2/kv_mse/fp8_e4m3/exact/512"
  size_t model = 0;
  std::optional<size_t> recipe = {};
  CacheType cache = KvDType::kFp8E4m3;
  std::optional<size_t> scales = {};  ///< of an FP8 cache
  std::optional<std::string> kv_forward = {};
  std::optional<int64_t> num_samples = {};
  std::optional<uint64_t> seed = {};
  std::optional<size_t> calibration = {};
  std::string fingerprint = {};         ///< of what it scores on the evaluation's text
  std::string answer_fingerprint = {};  ///< of what it answers; empty where it is not asked
};

/// Everything that has to be done, each piece once.
struct SweepPlan {
  std::vector<Cell> cells;  ///< in the order of the grids
  std::vector<PlannedCalibration> calibrations;
  std::vector<Observation> observations;
  int64_t num_combinations = 0;                ///< of all grids, those that mean the same included
  std::map<std::string, int64_t> meaningless;  ///< combinations that are no cell, by the reason

  int64_t num_merged() const;
  /// Whether the cell runs weights that its calibration makes.
  bool has_own_weights(const Cell& cell) const {
    return cell.calibration && calibrations[*cell.calibration].makes_checkpoint;
  }
};

/// Expands the grids. Combinations that mean the same are one cell: scales of 1.0 know no recipe
/// and no samples, a 16-bit cache no scales. unquantized: of each model, what its cache is without
/// FP8 ("auto"). Throws Error where no cell is left, a cell needs text to calibrate with and there
/// is none, or two cells have the same id.
SweepPlan expand(const SweepFile& sweep, std::span<const KvDType> unquantized);

/// Everything that results depend on beside the sweep's own values.
struct SweepInputs {
  std::string version = {}, device = {};             ///< of kvcal; "cpu", "cuda"
  FamilyChoice family = {};                          ///< of models whose type is not known
  std::vector<std::string> model_sha256 = {};        ///< of each model: its config and weights
  std::vector<std::string> model_files_sha256 = {};  ///< of each: tokenizer, templates and such
  std::vector<std::string> compute_dtype = {};       ///< of each model, resolved
  std::vector<std::string> scales_sha256 = {};       ///< of each source that is a file
  std::string calibration_sha256 = {}, evaluation_sha256 = {}, gsm8k_sha256 = {};  ///< of the data
  /// Hashes of the files that name them, which may be descriptors of how records are read.
  std::string calibration_file_sha256 = {}, evaluation_file_sha256 = {};
};
void add_fingerprints(const SweepFile& sweep, const SweepInputs& inputs, SweepPlan& plan);

/// A sweep's file and its expansion.
struct Sweep {
  SweepFile file;
  SweepPlan plan = {};  ///< without fingerprints where no inputs were read
  SweepInputs inputs = {};
};

/// The recipe that a calibration runs: without its part for K and V where that is left out.
Recipe recipe_of(const PlannedCalibration& calibration, const SweepFile& sweep);

/// "model", "recipe", "kv_cache_dtype", "scale_source", "kv_forward", "num_samples", "seed"; null
/// where a coordinate changes nothing.
Json coordinates_json(const Cell& cell, const SweepFile& sweep);

/// The recipe of the run that collects statistics; the scales of any recipe come from them.
Recipe statistics_recipe();

/// Whether it quantizes K and V.
bool quantizes_kv(const Recipe& recipe);
/// Whether it quantizes weights.
bool quantizes_weights(const Recipe& recipe);
/// Whether inputs of Linears get static scales, which need a run over text.
bool has_static_inputs(const Recipe& recipe);

}  // namespace kvcal
