#include "report/eval_charts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/number_text.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

/// Positions of the variant that has most of them: the others' are the same, or fewer.
std::vector<PositionAccuracy> all_positions(const EvalReport& report) {
  std::vector<PositionAccuracy> positions;
  for (const EvalVariant& variant : report.variants)
    if (variant.positions.size() > positions.size()) positions = variant.positions;
  return positions;
}

Series series_of(const EvalReport& report, size_t i) {
  const Look look = look_of(i);
  return {report.variants[i].name, look.css_class, look.mark, {}};
}

using PositionNumber = double PositionAccuracy::*;

/// error: the standard error of number.
Series position_series(const EvalVariant& variant, Series series,
                       const std::vector<PositionAccuracy>& positions, PositionNumber number,
                       PositionNumber error) {
  for (const PositionAccuracy& place : positions) {
    const auto found = std::ranges::find(variant.positions, place.first, &PositionAccuracy::first);
    const bool is_there = found != variant.positions.end();
    series.values.push_back(is_there ? (*found).*number : std::nan(""));
    series.errors.push_back(is_there ? (*found).*error : std::nan(""));
  }
  return series;
}

/// The chart with a series for each variant.
SeriesChart position_chart(const EvalReport& report, PositionNumber number, PositionNumber error,
                           SeriesChart chart) {
  chart.places_title = "position in the sequence";
  const std::vector<PositionAccuracy> positions = all_positions(report);
  for (const PositionAccuracy& place : positions) chart.places.push_back(position_words(place));
  for (size_t i = 0; i < report.variants.size(); ++i)
    chart.series.push_back(
        position_series(report.variants[i], series_of(report, i), positions, number, error));
  return chart;
}

bool has_kl(const EvalReport& report) {
  return std::ranges::any_of(report.variants, [](const EvalVariant& variant) {
    return std::ranges::any_of(variant.sequences, [](const SequenceAccuracy& sequence) {
      return std::isfinite(sequence.kl_mean);
    });
  });
}

}  // namespace

std::string position_words(const PositionAccuracy& position) {
  if (position.first == position.last) return std::to_string(position.first);
  return std::to_string(position.first) + "–" + std::to_string(position.last);
}

std::string kept_words(const MixedPrecision& row) {
  return row.kept_layers.empty() ? "all FP8" : "kept " + std::to_string(row.kept_layers.size());
}

SeriesChart kl_by_layer_chart(const EvalReport& report) {
  SeriesChart chart{.id = "layers-chart",
                    .title = "KL when the cache of one layer alone is quantized",
                    .description =
                        "Mean KL divergence from the reference, in nats, by layer and "
                        "variant; logarithmic. The numbers are in the table below.",
                    .values_title = "mean KL, nats"};
  std::set<int64_t> layers;
  for (const EvalVariant& variant : report.variants)
    for (const LayerAccuracy& layer : variant.layers) layers.insert(layer.layer);
  chart.places = place_names({layers.begin(), layers.end()});
  for (size_t i = 0; i < report.variants.size(); ++i) {
    if (report.variants[i].layers.empty()) continue;
    std::map<int64_t, const Measures*> by_layer;
    for (const LayerAccuracy& layer : report.variants[i].layers)
      by_layer[layer.layer] = &layer.measures;
    Series series = series_of(report, i);
    for (const int64_t layer : layers) {
      const Measures* measures = by_layer.contains(layer) ? by_layer[layer] : nullptr;
      series.values.push_back(measures ? measures->at("kl_mean") : std::nan(""));
      series.errors.push_back(measures ? measures->error_of("kl_mean") : std::nan(""));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

SeriesChart kl_by_position_chart(const EvalReport& report) {
  return position_chart(
      report, &PositionAccuracy::kl_mean, &PositionAccuracy::kl_stderr,
      {.id = "kl-positions-chart",
       .title = "KL by position in the sequence",
       .description =
           "Mean KL divergence from the reference, in nats, of the tokens at these positions, by "
           "variant; logarithmic. The numbers are in the table below.",
       .values_title = "mean KL, nats"});
}

SeriesChart nll_by_position_chart(const EvalReport& report) {
  SeriesChart chart = position_chart(
      report, &PositionAccuracy::nll, &PositionAccuracy::nll_stderr,
      {.id = "nll-positions-chart",
       .title = "Negative log likelihood by position in the sequence",
       .description =
           "Mean negative log likelihood, in nats, of the tokens at these positions, by variant "
           "and of the reference. The numbers are in the table below.",
       .values_title = "mean NLL, nats",
       .spacing = Spacing::kLinear});
  if (report.variants.empty()) return chart;
  // Every variant was compared with the same reference.
  Series reference = position_series(
      report.variants[0], {"reference", "reference", Mark::kCross, {}}, all_positions(report),
      &PositionAccuracy::reference_nll, &PositionAccuracy::reference_nll_stderr);
  if (std::ranges::any_of(reference.values, [](double value) { return std::isfinite(value); }))
    chart.series.push_back(std::move(reference));
  return chart;
}

SpreadChart sequences_chart(const EvalReport& report) {
  const bool is_kl = has_kl(report);
  SpreadChart chart{
      .id = "sequences-chart",
      .title = std::string(is_kl ? "Mean KL" : "Mean NLL") + " of the sequences",
      .description =
          "A tick a sequence; a box around the middle half, a heavy line "
          "at the median. The numbers are in the table below.",
      .values_title = is_kl ? "mean KL of a sequence, nats" : "mean NLL of a sequence",
      .spacing = is_kl ? Spacing::kLog : Spacing::kLinear};
  for (size_t i = 0; i < report.variants.size(); ++i) {
    const EvalVariant& variant = report.variants[i];
    if (variant.sequences.empty()) continue;
    SpreadRow row{variant.name, look_of(i).css_class, {}};
    for (const SequenceAccuracy& sequence : variant.sequences)
      row.values.push_back(is_kl ? sequence.kl_mean : sequence.nll);
    chart.rows.push_back(std::move(row));
  }
  return chart;
}

ScatterChart sensitivity_chart(const Sensitivity& sensitivity) {
  ScatterChart chart{.id = "sensitivity-chart",
                     .title = "KL against the size of the cache, by layers kept in 16 bits",
                     .description =
                         "Each point keeps some layers' cache in 16 bits; up is worse, "
                         "right is larger. The numbers are in the table below.",
                     .x_title = "cache of one token, bytes",
                     .y_title = "mean KL, nats"};
  chart.x_text = byte_text;
  for (const MixedPrecision& row : sensitivity.rows) {
    if (!std::isfinite(row.kl_mean) || !std::isfinite(row.bytes_per_token)) continue;
    chart.front.push_back(chart.points.size());
    chart.points.push_back({.x = row.bytes_per_token,
                            .y = std::max(0.0, row.kl_mean),
                            .label = kept_words(row),
                            .words = kept_words(row) + ": KL " + number_text(row.kl_mean) + ", " +
                                     byte_text(row.bytes_per_token) +
                                     (row.is_proposed ? ", proposed" : ""),
                            .css_class = "s0",
                            .mark = Mark::kCircle,
                            .is_chosen = row.is_proposed,
                            .y_error = row.kl_stderr});
  }
  if (std::isfinite(sensitivity.bytes_per_token_16_bit) && !chart.points.empty())
    chart.points.push_back(
        {.x = sensitivity.bytes_per_token_16_bit,
         .y = 0.0,
         .label = "16 bits",
         .words = "all layers in 16 bits: " + byte_text(sensitivity.bytes_per_token_16_bit),
         .css_class = "reference",
         .mark = Mark::kSquare});
  if (std::isfinite(sensitivity.kl_budget))
    chart.level = Level{sensitivity.kl_budget, "budget " + number_text(sensitivity.kl_budget)};
  return chart;
}

SeriesChart ranking_chart(const Sensitivity& sensitivity) {
  SeriesChart chart{.id = "ranking-chart",
                    .title = "Layers by what their quantized cache costs",
                    .description =
                        "Mean KL in nats when the cache of that layer alone is quantized, the "
                        "dearest layer first; logarithmic. The numbers are in the table below.",
                    .places_title = "layer, the dearest first",
                    .values_title = "mean KL, nats",
                    .series = {{"KL of this layer alone", "s0", Mark::kCircle, {}}}};
  for (const Sensitivity::Rank& rank : sensitivity.ranking) {
    chart.places.push_back(std::to_string(rank.layer));
    chart.series[0].values.push_back(rank.kl_mean);
    chart.series[0].errors.push_back(rank.kl_stderr);
  }
  return chart;
}

std::vector<Plot> eval_plots(const EvalReport& report) {
  std::vector<Plot> plots;
  add_plot(plots, "kl-by-layer", kl_by_layer_chart(report));
  add_plot(plots, "kl-by-position", kl_by_position_chart(report));
  add_plot(plots, "nll-by-position", nll_by_position_chart(report));
  add_plot(plots, "kl-by-sequence", sequences_chart(report));
  if (!report.sensitivity) return plots;
  add_plot(plots, "sensitivity", sensitivity_chart(*report.sensitivity));
  add_plot(plots, "ranking", ranking_chart(*report.sensitivity));
  return plots;
}

}  // namespace kvcal::report
