#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "sweep/plan.h"

namespace kvcal::test {

/// Recipes in one line, for sweeps in tests.
inline const std::string kKvRecipe =
    "{a_stage: {a_modifiers: {QuantizationModifier: {kv_cache_scheme: {num_bits: 8, type: float, "
    "strategy: tensor, observer: OBSERVER}}}}}";
/// FP8 weights by row with dynamic inputs, and K and V.
inline const std::string kDynamicKvRecipe =
    "{a_stage: {a_modifiers: {QuantizationModifier: {targets: [Linear], scheme: FP8_DYNAMIC, "
    "ignore: [lm_head], kv_cache_scheme: {num_bits: 8, type: float, strategy: tensor}}}}}";
/// FP8 weights and static inputs, no K and V.
inline const std::string kStaticRecipe =
    "{a_stage: {a_modifiers: {QuantizationModifier: {targets: [Linear], scheme: FP8, ignore: "
    "[lm_head]}}}}";

inline std::string kv_recipe(const std::string& observer) {
  std::string recipe = kKvRecipe;
  return recipe.replace(recipe.find("OBSERVER"), 8, observer);
}

/// A sweep of two models with recipes max, mse, dynamic and fixed, and this grid.
inline std::string sweep_text(const std::string& grid) {
  return "name: test\nmodels: [m1, {second: other/m2}]\nrecipes:\n- max: " +
         kv_recipe("static_minmax") + "\n- mse: " + kv_recipe("mse") +
         "\n- dynamic: " + kDynamicKvRecipe + "\n- fixed: " + kStaticRecipe +
         "\ncalibration: {dataset: c.jsonl, max_seq_length: 64}\n"
         "evaluation: {dataset: e.txt, num_samples: 3, max_seq_length: 32}\ngrid: " +
         grid + "\n";
}

/// Fingerprints of no real inputs.
inline SweepInputs some_inputs() {
  return {.version = "1.2",
          .device = "cpu",
          .model_sha256 = {"aa", "bb"},
          .model_files_sha256 = {"", ""},
          .compute_dtype = {"float32", "float32"},
          .scales_sha256 = {""},
          .calibration_sha256 = "cc",
          .evaluation_sha256 = "ee"};
}

/// The sweep and what it expands to; the models' own caches are float16 and bfloat16.
struct PlannedSweep {
  explicit PlannedSweep(const std::string& grid)
      : sweep(parse_sweep(sweep_text(grid), "/sweeps")),
        plan(expand(sweep, std::vector{KvDType::kFloat16, KvDType::kBFloat16})) {}

  std::vector<std::string> ids() const {
    std::vector<std::string> all;
    for (const Cell& cell : plan.cells) all.push_back(cell.id);
    return all;
  }
  const Cell& cell(const std::string& id) const {
    const auto found = std::ranges::find(plan.cells, id, &Cell::id);
    KVCAL_CHECK(found != plan.cells.end());
    return *found;
  }

  SweepFile sweep;
  SweepPlan plan;
};

}  // namespace kvcal::test
