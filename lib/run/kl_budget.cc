#include "run/kl_budget.h"

#include <algorithm>

#include "core/text.h"
#include "run/scored_scales.h"

namespace kvcal {
namespace {

/// Scales of all layers, and none of those in 16 bits and of those that read their caches.
std::vector<LayerKvScales> scales_but(const Calibration& calibration, const ModelConfig& config,
                                      const std::vector<int64_t>& kept) {
  const auto count = static_cast<size_t>(calibration.num_hidden_layers);
  std::vector<LayerKvScales> scales(count, {.ignored = true});
  for (const AttentionCalibration& one : calibration.layers) {
    const auto layer = static_cast<size_t>(one.layer);
    if (one.ignored || layer >= count) continue;
    const int64_t source = config.layer(one.layer).cache_layer;
    if (std::ranges::find(kept, source) != kept.end()) continue;
    scales[layer] = {.k = one.k.scales, .v = one.v.scales};
    if (one.q) scales[layer].q = one.q->scales;
  }
  return scales;
}

/// Whether both give the layers that the second quantizes the same scales.
bool have_same_scales(const Calibration& one, const Calibration& other) {
  const auto differ = [](const KvTensorCalibration& a, const KvTensorCalibration& b) {
    return !std::ranges::equal(a.scales, b.scales, {}, &Scale::value, &Scale::value);
  };
  for (size_t i = 0; i < other.layers.size(); ++i) {
    const AttentionCalibration &a = one.layers.at(i), &b = other.layers[i];
    if (b.ignored) continue;
    if (differ(a.k, b.k) || differ(a.v, b.v) || (b.q && differ(*a.q, *b.q))) return false;
  }
  return true;
}

/// Layers with a quantized cache of their own, the one first whose attention's output the cache
/// changes most, relative to its size (AttentionDamage).
std::vector<int64_t> ranked_layers(const Calibration& calibration, const ModelConfig& config) {
  std::vector<std::pair<double, int64_t>> damaged;
  for (const AttentionCalibration& one : calibration.layers)
    if (one.damage && !one.ignored && one.layer < config.num_hidden_layers)
      damaged.emplace_back(sum_of(one.damage->calibrated).relative_error(), one.layer);
  std::ranges::stable_sort(damaged, std::greater{}, &std::pair<double, int64_t>::first);
  std::vector<int64_t> ranked;
  for (const auto& [error, layer] : damaged) ranked.push_back(layer);
  return ranked;
}

}  // namespace

void check_budget(const CalibrateRequest& request, const Calibration& planned) {
  if (!request.kl_budget) return;
  if (planned.layers.empty())
    fail("--kl-budget is for K and V, and ", request.recipe, " quantizes none");
  if (planned.plan.quantizes_weights())
    fail("--kl-budget measures the cache alone, and ", request.recipe,
         " quantizes weights, too: make these first, then calibrate the cache of that checkpoint");
}

KlBudget::KlBudget(const CalibrateRequest& request, const Calibration& calibration,
                   const ModelConfig& config, int64_t num_samples, Diagnostics& diagnostics)
    : budget_(request.kl_budget.value()),
      diagnostics_(diagnostics),
      ranked_(ranked_layers(calibration, config)),
      most_(ranked_.size() / 2),
      eval_(options_of_left(request, num_samples)) {
  VariantSpec& variant = eval_.more_variants.emplace_back();
  variant.name = "calibrated";
  variant.cache.kv_cache_dtype = request.output.kv_cache_dtype;
  variant.scales = {scales_but(calibration, config, {}), "calibrated", calibration.kv_format};
  variants_.emplace(eval_, true, diagnostics);
  sequences_ = read_left_sequences(eval_, variants_->model(), diagnostics);
}

std::vector<Likelihood> KlBudget::score(const Calibration& calibration,
                                        const std::vector<std::vector<int64_t>>& kept) {
  const CacheType type = variants_->variants()[0].label.type;
  std::vector<std::vector<LayerKvScales>> scales;
  for (const auto& layers : kept)
    scales.push_back(scales_as(type, scales_but(calibration, variants_->model().config, layers),
                               calibration.kv_format));
  return variants_->score_scales(scales, sequences_, diagnostics_);
}

KlBudgetOutcome KlBudget::propose(const Calibration& calibration) {
  MixedSearch found = find_kept_layers(ranked_, budget_, most_,
                                       [&](const auto& kept) { return score(calibration, kept); });
  KlBudgetOutcome outcome{.kl_budget = budget_,
                          .num_sequences = sequences_.size(),
                          .is_held_out = eval_.sequences.num_skipped > 0};
  if (found.proposed) {
    const MixedCache& proposed = found.measured[*found.proposed];
    outcome.layers = proposed.kept;
    outcome.result = proposed.result;
  }
  outcome.measured = std::move(found.measured);
  return outcome;
}

void KlBudget::fail_missed(const KlBudgetOutcome& outcome, double least, size_t num_kept) const {
  throw BudgetMissed("--kl-budget " + short_float(budget_) + ": the mean KL is " +
                     short_float(least) + " with " + std::to_string(num_kept) + " of " +
                     counted(ranked_.size(), "layer") +
                     " in 16 bits, which is as many as may stay so, and " +
                     short_float(*outcome.measured.front().result.kl_mean) + " with none");
}

KlBudgetOutcome KlBudget::keep(Calibration& calibration, const Recalibrate& recalibrate) {
  KlBudgetOutcome outcome = propose(calibration);
  if (!outcome.layers) {
    const MixedCache& most = outcome.measured.back();
    fail_missed(outcome, *most.result.kl_mean, most.kept.size());
  }
  const size_t proposed = outcome.layers->size();
  for (size_t count = proposed; count > 0;) {
    Calibration left = recalibrate(*outcome.layers);
    const bool is_measured = count == proposed && have_same_scales(calibration, left);
    if (!is_measured) outcome.result = score(left, {*outcome.layers}).at(0);
    if (*outcome.result.kl_mean <= budget_) {
      calibration = std::move(left);
      break;
    }
    if (++count > most_) fail_missed(outcome, *outcome.result.kl_mean, count - 1);
    outcome.layers =
        std::vector<int64_t>(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(count));
    std::ranges::sort(*outcome.layers);
  }
  return outcome;
}

KlBudgetOutcome propose_layers(const CalibrateRequest& request, const CalibrationResult& result,
                               Diagnostics& diagnostics) {
  check_budget(request, result.calibration);
  const auto num_samples = result.cost ? static_cast<int64_t>(result.cost->num_samples) : 0;
  KlBudget budget(request, result.calibration, result.config, num_samples, diagnostics);
  return budget.propose(result.calibration);
}

}  // namespace kvcal
