#include "calib/summary/scale_summary.h"

#include <algorithm>
#include <set>

#include "core/text.h"

namespace kvcal {
namespace {

constexpr double kNoticed = 1.1;  ///< ratio of errors from which 1.0 counts as coarse

/// KL of a model over the mean KL of its layers' softmax weights, as measured: 1.3 to 2.7 for
/// models of 28 and 30 layers, 0.5 where a few layers are far worse and kept in 16 bits.
constexpr double kKlOfWeights = 2;

/// Scale of a head. Of channels it is the largest: which values a channel has is not known, so the
/// errors are those of a scale a head, which are larger.
Scale scale_of_head(const KvTensorCalibration& side, size_t head) {
  const size_t width = side.scales.size() / side.head_histograms.size();
  if (width <= 1) return side.scales[side.scales.size() == 1 ? 0 : head];
  const auto first = side.scales.begin() + static_cast<std::ptrdiff_t>(head * width);
  return *std::max_element(first, first + static_cast<std::ptrdiff_t>(width),
                           [](Scale a, Scale b) { return a.value < b.value; });
}

CodeErrors errors_of(const KvTensorCalibration& side, bool is_unit, const KvFormat& format) {
  CodeErrors errors;
  for (size_t head = 0; head < side.head_histograms.size(); ++head) {
    errors.add(code_errors(side.head_histograms[head], side.head_ranges[head].amax(),
                           is_unit ? Scale{1.0f} : scale_of_head(side, head), format));
  }
  return errors;
}

bool has_statistics(const KvTensorCalibration& side) {
  const auto& histograms = side.head_histograms;
  const auto is_seen = [](const MagnitudeHistogram& one) {
    return std::ranges::any_of(one.counts, [](uint64_t count) { return count > 0; });
  };
  return !side.scales.empty() && !histograms.empty() && std::ranges::all_of(histograms, is_seen);
}

void look_at_growth(const KvTensorCalibration& side, int64_t layer, bool is_key,
                    std::optional<LateGrowth>& largest) {
  const AmaxConvergence& seen = side.convergence;
  if (seen.num_samples.size() < 2) return;
  const int64_t all = seen.num_samples.back();
  // The first entry is one sample, so there is one of at most half of them.
  const auto after =
      std::ranges::find_if(seen.num_samples, [&](int64_t count) { return 2 * count > all; });
  const auto half = static_cast<size_t>(after - seen.num_samples.begin()) - 1;
  const double before = seen.running[half].value, now = seen.running.back().value;
  if (!(before > 0)) return;
  const double ratio = now / before - 1;
  if (largest && largest->ratio >= ratio) return;
  largest = {.ratio = ratio,
             .layer = layer,
             .is_key = is_key,
             .from_samples = seen.num_samples[half],
             .num_samples = all};
}

UnitClipping clipping_of(const std::vector<LayerErrors>& layers, SideErrors LayerErrors::*side) {
  UnitClipping clipping;
  CodeErrors sum;
  for (const LayerErrors& layer : layers) {
    const CodeErrors& unit = (layer.*side).unit;
    if (unit.clipped == 0) continue;
    clipping.layers.push_back(layer.layer);
    sum.add(unit);
  }
  if (sum.values > 0) clipping.share = sum.clipped / sum.values;
  return clipping;
}

double error_ratio(const SideErrors& side) {
  const double own = side.calibrated.relative_error(), unit = side.unit.relative_error();
  return own > 0 ? unit / own : 1.0;
}

void judge_unit_scale(ScaleSummary& summary) {
  summary.clipped_k = clipping_of(summary.layers, &LayerErrors::k);
  summary.clipped_v = clipping_of(summary.layers, &LayerErrors::v);
  for (const LayerErrors& layer : summary.layers)
    summary.unit_error_ratio =
        std::max({summary.unit_error_ratio, error_ratio(layer.k), error_ratio(layer.v)});
  if (!summary.clipped_k.layers.empty() || !summary.clipped_v.layers.empty())
    summary.unit = UnitScale::kClips;
  else if (summary.unit_error_ratio > kNoticed)
    summary.unit = UnitScale::kCoarse;
}

void add_margin(const KvTensorCalibration& side, double& largest, double& least_head) {
  for (const Range& range : side.head_ranges) {
    const auto amax = static_cast<double>(range.amax().value);
    largest = std::max(largest, amax);
    if (amax > 0) least_head = least_head > 0 ? std::min(least_head, amax) : amax;
  }
}

double worst_error(const LayerErrors& layer) {
  return std::max(layer.k.calibrated.relative_error(), layer.v.calibrated.relative_error());
}

Json errors_json(const CodeErrors& errors) {
  return {{"clipped", errors.clipped / errors.values},
          {"to_zero", errors.to_zero / errors.values},
          {"relative_error", errors.relative_error()}};
}

Json side_json(const SideErrors& side) {
  return {{"calibrated", errors_json(side.calibrated)}, {"unit", errors_json(side.unit)}};
}

Json predicted_json(const CacheDamage& damage) {
  Json json = {{"kl_mean", damage.kl_mean}};
  add_verdict(damage, json);
  return json;
}

Json clipping_json(const UnitClipping& clipping) {
  return {{"share", clipping.share}, {"in_layers", clipping.layers}};
}

Json to_json(const ImageReach& reach) {
  return {{"ratio", reach.ratio}, {"layer", reach.layer}, {"larger_in_layers", reach.layers}};
}

Json margin_json(const UnitMargin& margin) {
  return {{"k_largest", margin.largest_k},       {"v_largest", margin.largest_v},
          {"k_least_head", margin.least_head_k}, {"v_least_head", margin.least_head_v},
          {"largest_code", margin.largest_code}, {"least_code", margin.least_code}};
}

std::string_view name_of(UnitScale unit) {
  if (unit == UnitScale::kClips) return "clips";
  return unit == UnitScale::kCoarse ? "coarse" : "as_good";
}

}  // namespace

std::optional<ScaleSummary> summarize_scales(const Calibration& calibration,
                                             const ModelConfig& config, int64_t longest_sample) {
  const std::vector<int64_t> cached = config.cached_layers();
  const std::set<int64_t> own(cached.begin(), cached.end());
  ScaleSummary summary;
  for (const AttentionCalibration& one : calibration.layers) {
    const bool is_draft = calibration.is_draft(one);
    if (!is_draft && !own.contains(one.layer)) continue;
    if (one.ignored) {
      if (is_draft) continue;
      summary.layers_16_bit.push_back(one.layer);
      summary.cache_bytes_16_bit += 2 * static_cast<uint64_t>(config.cache(one.layer).width());
      continue;
    }
    if (!has_statistics(one.k) || !has_statistics(one.v)) continue;
    const auto errors = [&](const KvTensorCalibration& side) {
      return SideErrors{.calibrated = errors_of(side, false, calibration.kv_format),
                        .unit = errors_of(side, true, calibration.kv_format)};
    };
    summary.layers.push_back({.layer = one.layer, .k = errors(one.k), .v = errors(one.v)});
    add_margin(one.k, summary.margin.largest_k, summary.margin.least_head_k);
    add_margin(one.v, summary.margin.largest_v, summary.margin.least_head_v);
    look_at_growth(one.k, one.layer, true, summary.growth);
    look_at_growth(one.v, one.layer, false, summary.growth);
  }
  if (summary.layers.empty()) return std::nullopt;
  summary.margin.largest_code = calibration.kv_format.largest_code();
  summary.margin.least_code = calibration.kv_format.least_code();
  summary.format = calibration.kv_format;
  summary.late = late_positions(calibration.layers, longest_sample, config.max_position_embeddings);
  summary.images = image_magnitudes(calibration.layers);
  for (const int64_t layer : cached)
    summary.cache_bytes_fp8 += static_cast<uint64_t>(config.cache(layer).width());
  judge_unit_scale(summary);
  summary.predicted = predicted_damage(calibration, config, &AttentionDamage::calibrated);
  summary.predicted_unit = predicted_damage(calibration, config, &AttentionDamage::unit);
  return summary;
}

std::optional<CacheDamage> predicted_damage(const Calibration& calibration,
                                            const ModelConfig& config,
                                            std::vector<AttentionError> AttentionDamage::*scales) {
  std::vector<int64_t> own = config.cached_layers();
  // Draft layers propose tokens that the model checks.
  std::erase_if(own, [&](int64_t layer) { return config.is_draft(layer); });
  double sum = 0;
  int64_t compared = 0;
  for (const AttentionCalibration& layer : calibration.layers) {
    if (std::ranges::find(own, layer.layer) == own.end() || layer.ignored) continue;
    if (!layer.damage) return std::nullopt;
    sum += sum_of((*layer.damage).*scales).mean_kl();
    ++compared;
  }
  if (compared == 0) return std::nullopt;
  // The KL of rounding errors alone may be below zero.
  return CacheDamage{.kl_mean = std::max(0.0, kKlOfWeights * sum / static_cast<double>(own.size())),
                     .is_predicted = true};
}

std::vector<const LayerErrors*> worst_layers(const ScaleSummary& summary, size_t most) {
  std::vector<const LayerErrors*> layers;
  for (const LayerErrors& layer : summary.layers) layers.push_back(&layer);
  std::ranges::stable_sort(layers, [](const LayerErrors* a, const LayerErrors* b) {
    return worst_error(*a) > worst_error(*b);
  });
  layers.resize(std::min(layers.size(), most));
  return layers;
}

Json to_json(const ScaleSummary& summary) {
  Json errors = Json::array();
  for (const LayerErrors& layer : summary.layers)
    errors.push_back(
        {{"layer", layer.layer}, {"k", side_json(layer.k)}, {"v", side_json(layer.v)}});
  Json json = {{"cache_bytes_per_token",
                {{summary.format.is_int8() ? "int8" : "fp8", summary.cache_bytes_fp8},
                 {"16_bit", 2 * summary.cache_bytes_fp8}}},
               {"unit_scale",
                {{"verdict", name_of(summary.unit)},
                 {"clipped_k", clipping_json(summary.clipped_k)},
                 {"clipped_v", clipping_json(summary.clipped_v)},
                 {"margin", margin_json(summary.margin)},
                 {"error_ratio", summary.unit_error_ratio}}},
               {"errors", std::move(errors)}};
  if (!summary.layers_16_bit.empty()) {
    json["layers_16_bit"] = summary.layers_16_bit;
    json["cache_bytes_per_token"]["as_served"] = summary.cache_bytes();
  }
  if (summary.predicted && summary.predicted_unit)
    json["predicted"] = {{"calibrated", predicted_json(*summary.predicted)},
                         {"unit", predicted_json(*summary.predicted_unit)}};
  if (summary.images)
    json["images"] = {{"k", to_json(summary.images->k)}, {"v", to_json(summary.images->v)}};
  if (const auto& growth = summary.growth)
    json["late_growth"] = {{"ratio", growth->ratio},
                           {"layer", growth->layer},
                           {"tensor", growth->is_key ? "k" : "v"},
                           {"from_samples", growth->from_samples},
                           {"num_samples", growth->num_samples}};
  if (const auto& late = summary.late)
    json["late_positions"] = {{"k_layers", late->k_layers},
                              {"v_layers", late->v_layers},
                              {"first", late->first},
                              {"advised_tokens", late->advised}};
  return json;
}

std::string unit_scale_text(const ScaleSummary& summary) {
  if (summary.unit == UnitScale::kAsGood)
    return "has the range for these K and V: it clips nothing and rounds no coarser";
  if (summary.unit == UnitScale::kCoarse)
    return "would clip nothing, but its error is up to " + fixed("%.1f", summary.unit_error_ratio) +
           " times as large: keep these scales";
  std::vector<std::string> sides;
  for (const auto& [name, clipping] :
       {std::pair{"K", &summary.clipped_k}, std::pair{"V", &summary.clipped_v}})
    if (!clipping->layers.empty())
      sides.push_back(percent(clipping->share) + " of " + name + " in " +
                      layer_range_text(clipping->layers));
  return "would clip " + join(sides, " and ") + ": keep these scales";
}

std::string unit_margin_text(const UnitMargin& margin) {
  const auto number = [](double value) { return fixed(value < 100 ? "%.3g" : "%.0f", value); };
  const std::string largest = number(margin.largest_code);
  const double most = std::max(margin.largest_k, margin.largest_v);
  std::string text =
      "largest K " + number(margin.largest_k) + " and V " + number(margin.largest_v) + ", " +
      (most > margin.largest_code ? "over " + largest
                                  : number(margin.largest_code / most) + " times below " + largest);
  const double least = std::min(margin.least_head_k, margin.least_head_v);
  return text + "; the head with the smallest values reaches " + number(least) + ", " +
         (least < margin.least_code
              ? "under the smallest code, " + number(margin.least_code)
              : number(least / margin.least_code) + " times above the smallest code");
}

}  // namespace kvcal
