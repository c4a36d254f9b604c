#include "sweep/plan.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"

namespace kvcal {
namespace {

/// Whether the scheme is one of attention, whose inputs are queries, keys and values.
bool is_for_attention(const QuantScheme& scheme) {
  return scheme.input_activations && !scheme.weights;
}

template <class Condition>
bool any_group(const Recipe& recipe, const Condition& condition) {
  return std::ranges::any_of(recipe.modifiers, [&](const Modifier& modifier) {
    return std::ranges::any_of(modifier.config_groups,
                               [&](const auto& group) { return condition(group.second); });
  });
}

/// Whether it quantizes queries or inputs of Linears: statistics of K and V are not enough.
bool needs_more_than_kv(const Recipe& recipe) {
  return has_static_inputs(recipe) || any_group(recipe, is_for_attention);
}

/// The part of a recipe for weights and inputs, for K and V that keep 16 bits or get other scales.
/// The recipe must quantize weights.
Recipe without_kv(const Recipe& recipe) {
  Recipe rest = recipe;
  for (Modifier& modifier : rest.modifiers) {
    modifier.kv_cache_scheme.reset();
    std::erase_if(modifier.config_groups,
                  [](const auto& group) { return is_for_attention(group.second); });
  }
  // A modifier of K and V alone is empty now.
  std::erase_if(rest.modifiers, [](const Modifier& one) { return one.config_groups.empty(); });
  return rest;
}

/// One value of each dimension.
struct Combination {
  size_t model = 0;
  std::optional<size_t> recipe;
  CacheType cache = KvDType::kFp8E4m3;
  size_t scales = 0;
  std::string kv_forward;
  int64_t num_samples = 0;
  std::optional<uint64_t> seed;
};

template <class Body>
void for_each_combination(const SweepGrid& grid, std::span<const KvDType> unquantized,
                          const Body& body) {
  for (const size_t model : grid.models)
    for (const auto& recipe : grid.recipes)
      for (const auto& dtype : grid.kv_cache_dtypes)
        for (const size_t scales : grid.scales)
          for (const std::string& forward : grid.kv_forward)
            for (const int64_t samples : grid.num_calibration_samples)
              for (const auto& seed : grid.shuffle_seeds)
                body(Combination{model, recipe, dtype.value_or(CacheType(unquantized[model])),
                                 scales, forward, samples, seed});
}

std::string id_of(const Cell& cell, const SweepFile& sweep) {
  std::string id = sweep.models[cell.model].name;
  if (cell.recipe) id += "/" + sweep.recipes[*cell.recipe].name;
  id += "/" + std::string(name_of(cell.cache));
  if (cell.scales && sweep.scales[*cell.scales].kind != ScaleSource::Kind::kCalibrated)
    id += "/" + sweep.scales[*cell.scales].name;
  if (cell.kv_forward) id += "/" + *cell.kv_forward;
  if (cell.num_samples) id += "/" + std::to_string(*cell.num_samples);
  if (cell.seed) id += "/seed" + std::to_string(*cell.seed);
  return id;
}

class Expansion {
 public:
  explicit Expansion(const SweepFile& sweep) : sweep_(sweep) {}

  void add(const Combination& combination) {
    ++plan_.num_combinations;
    if (const std::string why = why_meaningless(combination); !why.empty()) {
      ++plan_.meaningless[why];
      return;
    }
    Cell cell = cell_of(combination);
    if (!seen_.insert({cell.model, cell.cache, cell.scales, cell.calibration}).second) return;
    cell.id = id_of(cell, sweep_);
    if (!ids_.insert(cell.id).second)
      fail("two cells have the id ", cell.id, "; give a recipe or a model another name");
    plan_.cells.push_back(std::move(cell));
  }
  SweepPlan take() { return std::move(plan_); }

 private:
  const Recipe& recipe(size_t index) const { return sweep_.recipes[index].recipe; }

  /// Whether K and V get the recipe's own scales.
  bool is_calibrated(const Combination& one) const {
    return needs_scales(one.cache) &&
           sweep_.scales[one.scales].kind == ScaleSource::Kind::kCalibrated;
  }

  std::string why_meaningless(const Combination& one) const {
    if (!is_calibrated(one)) return "";
    if (!one.recipe) return "calibrated scales without a recipe";
    if (quantizes_kv(recipe(*one.recipe))) return "";
    return sweep_.recipes[*one.recipe].name + " asks for no scales of K and V";
  }

  Cell cell_of(const Combination& one) {
    Cell cell{.id = {}, .model = one.model, .cache = one.cache};
    if (needs_scales(one.cache)) cell.scales = one.scales;
    const bool is_as_it_lies =
        cell.scales && sweep_.scales[one.scales].kind == ScaleSource::Kind::kCheckpoint;
    const bool matters = one.recipe && !is_as_it_lies &&
                         (is_calibrated(one) || quantizes_weights(recipe(*one.recipe)));
    if (!matters) return cell;
    cell.recipe = one.recipe;
    if (is_calibrated(one)) cell.kv_forward = one.kv_forward;
    if (is_calibrated(one) || has_static_inputs(recipe(*one.recipe))) {
      cell.num_samples = one.num_samples;
      cell.seed = one.seed;
    }
    cell.calibration = calibration_of(cell, is_calibrated(one));
    return cell;
  }

  size_t calibration_of(const Cell& cell, bool has_kv) {
    if (cell.num_samples && !sweep_.calibration)
      fail("the sweep lacks the key 'calibration', whose data set ", id_of(cell, sweep_),
           " needs for its scales");
    PlannedCalibration calibration{.model = cell.model,
                                   .recipe = *cell.recipe,
                                   .kv_forward = cell.kv_forward,
                                   .num_samples = cell.num_samples,
                                   .seed = cell.seed,
                                   .makes_checkpoint = quantizes_weights(recipe(*cell.recipe))};
    // Scales of simulated formats are made of those of FP8.
    if (has_kv)
      calibration.kv_cache_dtype = cell.cache.format ? KvDType::kFp8E4m3 : cell.cache.dtype;
    // Without K and V in FP8 the forward pass is exact, whatever was asked for.
    if (cell.num_samples && cell.kv_forward != "quantized" &&
        !chooses_by_attention(recipe_of(calibration, sweep_)))
      calibration.observation = observation_of(cell);
    // Recipes that differ in K and V alone are the same without them.
    const std::string asked = to_yaml(recipe_of(calibration, sweep_));
    for (size_t i = 0; i < plan_.calibrations.size(); ++i) {
      calibration.recipe = plan_.calibrations[i].recipe;
      if (asked_[i] == asked && plan_.calibrations[i] == calibration) return i;
    }
    calibration.recipe = *cell.recipe;
    asked_.push_back(asked);
    plan_.calibrations.push_back(std::move(calibration));
    return plan_.calibrations.size() - 1;
  }

  size_t observation_of(const Cell& cell) {
    const bool observes_all = needs_more_than_kv(recipe(*cell.recipe));
    for (size_t i = 0; i < plan_.observations.size(); ++i) {
      Observation& known = plan_.observations[i];
      if (known.model != cell.model || known.num_samples != *cell.num_samples ||
          known.seed != cell.seed)
        continue;
      known.observes_all |= observes_all;
      return i;
    }
    plan_.observations.push_back({.model = cell.model,
                                  .num_samples = *cell.num_samples,
                                  .seed = cell.seed,
                                  .observes_all = observes_all});
    return plan_.observations.size() - 1;
  }

  const SweepFile& sweep_;
  SweepPlan plan_;
  std::vector<std::string> asked_;  ///< of each calibration: its recipe
  /// Key that tells cells apart; it has the part of the recipe that the calibration keeps.
  using Meaning = std::tuple<size_t, CacheType, std::optional<size_t>, std::optional<size_t>>;
  std::set<Meaning> seen_;
  std::set<std::string> ids_;
};

Json dtype_json(const std::optional<KvDType>& dtype) {
  return dtype ? Json(name_of(*dtype)) : Json();
}

/// Everything that any result depends on.
Json common_json(std::string_view kind, size_t model, const SweepInputs& inputs) {
  Json json = {{"kind", kind},
               {"version", inputs.version},
               {"device", inputs.device},
               {"model", inputs.model_sha256[model]},
               {"model_files", inputs.model_files_sha256[model]},
               {"compute_dtype", inputs.compute_dtype[model]}};
  if (inputs.family)
    json["family"] = inputs.family.is_from_file() ? inputs.family.file_sha256 : inputs.family.value;
  return json;
}

Json samples_json(const std::optional<int64_t>& count, const std::optional<uint64_t>& seed,
                  const SweepFile& sweep, const SweepInputs& inputs) {
  if (!count) return nullptr;
  Json json = {{"dataset", inputs.calibration_sha256},
               {"dataset_file", inputs.calibration_file_sha256},
               {"max_seq_length", sweep.calibration->max_seq_length},
               {"num_samples", *count},
               {"seed", or_null(seed)}};
  json.update(identity_of(sweep.calibration->records));
  return json;
}

std::string fingerprint_of(const Json& all) {
  return sha256_hex(all.dump());
}

std::string fingerprint_of(const PlannedCalibration& calibration, const SweepFile& sweep,
                           const SweepInputs& inputs) {
  Json json = common_json("calibration", calibration.model, inputs);
  json["recipe"] = to_yaml(recipe_of(calibration, sweep));
  json["kv_cache_dtype"] = dtype_json(calibration.kv_cache_dtype);
  json["kv_forward"] = or_null(calibration.kv_forward);
  json["samples"] = samples_json(calibration.num_samples, calibration.seed, sweep, inputs);
  return fingerprint_of(json);
}

std::string fingerprint_of(const Observation& observation, const SweepFile& sweep,
                           const SweepInputs& inputs) {
  Json json = common_json("observation", observation.model, inputs);
  json["observes_all"] = observation.observes_all;
  json["samples"] = samples_json(observation.num_samples, observation.seed, sweep, inputs);
  return fingerprint_of(json);
}

Json scales_json(const std::optional<size_t>& scales, const SweepFile& sweep,
                 const SweepInputs& inputs) {
  if (!scales) return nullptr;
  const ScaleSource& source = sweep.scales[*scales];
  return source.kind == ScaleSource::Kind::kFile ? inputs.scales_sha256[*scales] : source.name;
}

/// Identity of a cell, whatever is measured.
Json cell_json(std::string_view kind, const Cell& cell, const SweepFile& sweep,
               const SweepInputs& inputs, const SweepPlan& plan) {
  Json json = common_json(kind, cell.model, inputs);
  json["kv_cache_dtype"] = name_of(cell.cache);
  json["scales"] = scales_json(cell.scales, sweep, inputs);
  json["calibration"] =
      cell.calibration ? Json(plan.calibrations[*cell.calibration].fingerprint) : Json();
  return json;
}

std::string fingerprint_of(const Cell& cell, const SweepFile& sweep, const SweepInputs& inputs,
                           const SweepPlan& plan) {
  Json json = cell_json("cell", cell, sweep, inputs, plan);
  json["evaluation"] = {{"dataset", inputs.evaluation_sha256},
                        {"dataset_file", inputs.evaluation_file_sha256},
                        {"num_samples", sweep.evaluation.num_sequences},
                        {"max_seq_length", sweep.evaluation.max_seq_length},
                        {"stride", sweep.evaluation.stride}};
  json["evaluation"].update(identity_of(sweep.evaluation.records));
  return fingerprint_of(json);
}

std::string answer_fingerprint_of(const Cell& cell, const SweepFile& sweep,
                                  const SweepInputs& inputs, const SweepPlan& plan) {
  if (!sweep.gsm8k) return "";
  Json json = cell_json("answers", cell, sweep, inputs, plan);
  json["gsm8k"] = {{"dataset", inputs.gsm8k_sha256},
                   {"num_fewshot", sweep.gsm8k->num_fewshot},
                   {"max_gen_toks", sweep.gsm8k->max_gen_toks},
                   {"limit", or_null(sweep.gsm8k->limit)}};
  return fingerprint_of(json);
}

}  // namespace

int64_t SweepPlan::num_merged() const {
  int64_t left_out = 0;
  for (const auto& [why, count] : meaningless) left_out += count;
  return num_combinations - left_out - static_cast<int64_t>(cells.size());
}

SweepPlan expand(const SweepFile& sweep, std::span<const KvDType> unquantized) {
  Expansion expansion(sweep);
  for (const SweepGrid& grid : sweep.grids)
    for_each_combination(grid, unquantized,
                         [&](const Combination& combination) { expansion.add(combination); });
  SweepPlan plan = expansion.take();
  if (plan.cells.empty()) {
    const auto why = [](const auto& entry) { return entry.first; };
    fail("the sweep has no cell", plan.meaningless.empty() ? "" : ": ",
         join(plan.meaningless, ", ", why));
  }
  return plan;
}

void add_fingerprints(const SweepFile& sweep, const SweepInputs& inputs, SweepPlan& plan) {
  for (Observation& observation : plan.observations)
    observation.fingerprint = fingerprint_of(observation, sweep, inputs);
  for (PlannedCalibration& calibration : plan.calibrations)
    calibration.fingerprint = fingerprint_of(calibration, sweep, inputs);
  for (Cell& cell : plan.cells) {
    cell.fingerprint = fingerprint_of(cell, sweep, inputs, plan);
    cell.answer_fingerprint = answer_fingerprint_of(cell, sweep, inputs, plan);
  }
}

Recipe recipe_of(const PlannedCalibration& calibration, const SweepFile& sweep) {
  const Recipe& recipe = sweep.recipes[calibration.recipe].recipe;
  return calibration.kv_cache_dtype ? recipe : without_kv(recipe);
}

Json coordinates_json(const Cell& cell, const SweepFile& sweep) {
  return {{"model", sweep.models[cell.model].name},
          {"recipe", cell.recipe ? Json(sweep.recipes[*cell.recipe].name) : Json()},
          {"kv_cache_dtype", name_of(cell.cache)},
          {"scale_source", cell.scales ? Json(sweep.scales[*cell.scales].name) : Json()},
          {"kv_forward", or_null(cell.kv_forward)},
          {"num_samples", or_null(cell.num_samples)},
          {"seed", or_null(cell.seed)}};
}

Recipe statistics_recipe() {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = Strategy::kTensor;
  args.observer = "static_minmax";
  Modifier modifier;
  modifier.stage = modifier.group = "sweep";
  modifier.kv_cache_scheme = std::move(args);
  Recipe recipe;
  recipe.modifiers.push_back(std::move(modifier));
  return recipe;
}

bool quantizes_kv(const Recipe& recipe) {
  return std::ranges::any_of(recipe.modifiers,
                             [](const Modifier& one) { return one.kv_cache_scheme.has_value(); }) ||
         any_group(recipe, is_for_attention);
}

bool quantizes_weights(const Recipe& recipe) {
  return any_group(recipe, [](const QuantScheme& scheme) { return scheme.weights.has_value(); });
}

bool has_static_inputs(const Recipe& recipe) {
  return any_group(recipe, [](const QuantScheme& scheme) {
    return scheme.weights && scheme.input_activations && !scheme.input_activations->dynamic;
  });
}

}  // namespace kvcal
