#include <algorithm>
#include <cmath>

#include "report/checkpoint_charts.h"
#include "report/checkpoint_sections.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

/// Heads of more layers are not drawn, so that pages stay small; the manifest has them.
constexpr size_t kMostHeads = 8'000;

std::string error_text(float error) {
  return share_text(static_cast<double>(error));
}

Markup damage_table(const CheckpointReport& report) {
  TableMarkup table({.id = "damage-table",
                     .caption = "What the cache does to the attention of each layer",
                     .is_sortable = true},
                    {{"layer"},
                     {"output", "relative error of attention's output with the scales"},
                     {"output, 1.0", "the same with scale 1.0"},
                     {"weights", "KL divergence of the softmax weights with the scales, in nats"},
                     {"weights, 1.0", "the same with scale 1.0"}});
  const auto number = [](float value) { return number_text(static_cast<double>(value)); };
  for (const CacheLayer& layer : report.layers) {
    if (!layer.damage) continue;
    const AttentionLoss &own = layer.damage->calibrated, &unit = layer.damage->unit;
    table.row(std::to_string(layer.layer), "layer-" + std::to_string(layer.layer))
        .cell(error_text(own.output_error), static_cast<double>(own.output_error))
        .cell(error_text(unit.output_error), static_cast<double>(unit.output_error))
        .cell(number(own.weights_kl))
        .cell(number(unit.weights_kl));
  }
  return table.finish();
}

}  // namespace

SeriesChart damage_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "damage-chart",
                    .title = "What FP8 codes of K and V do to attention, by layer",
                    .description =
                        "The relative error of attention's output beside that over "
                        "unquantized K and V, with the layer's scales and with 1.0.",
                    .values_title = "error of attention's output",
                    .places = layer_names(report)};
  const auto series = [&](const char* name, const char* css_class, Mark mark,
                          AttentionLoss LayerDamage::*loss) {
    Series one{name, css_class, mark};
    for (const CacheLayer& layer : report.layers)
      one.values.push_back(layer.damage ? static_cast<double>(((*layer.damage).*loss).output_error)
                                        : std::nan(""));
    return one;
  };
  const auto is_known = [](const CacheLayer& layer) { return layer.damage.has_value(); };
  if (!std::ranges::any_of(report.layers, is_known)) return chart;
  chart.series = {series("the scales", "k", Mark::kCircle, &LayerDamage::calibrated),
                  series("scale 1.0", "v", Mark::kSquare, &LayerDamage::unit)};
  return chart;
}

HeatMap damage_map(const CheckpointReport& report) {
  HeatMap map{.id = "damage-heads", .what = "error of attention's output"};
  for (const CacheLayer& layer : report.layers) {
    if (!layer.damage) continue;
    map.layers.push_back(layer.layer);
    map.rows.push_back(layer.damage->calibrated.head_output_error);
  }
  return map;
}

Section damage_section(const CheckpointReport& report) {
  Section section{"damage", "What the cache does to attention"};
  const SeriesChart chart = damage_chart(report);
  const Drawing drawing = draw_series(chart);
  if (drawing.content.empty()) {
    section.body.append(
        words("What the cache does to attention is not known: it is in manifests of calibrations "
              "of this version, where a forward pass ran."));
    return section;
  }
  Markup drawings, numbers = damage_table(report);
  drawings.append(framed(drawing)).append(legend_list("damage-mark", series_legend(chart.series)));
  if (const HeatMap map = damage_map(report); cells_of(map) > 0 && cells_of(map) <= kMostHeads) {
    drawings.append(heat_map_part(map));
    numbers.append(heat_map_table(map));
  }
  section.body.append(figure(
      {.label = "Attention with the cache and without",
       .caption = "While a layer ran, attention over K and V in FP8 was compared with attention "
                  "over the unquantized ones, on some queries of the first samples. A layer that "
                  "stands out here is the one to keep in 16 bits.",
       .drawings = drawings,
       .numbers = folded("Numbers of all layers", numbers)}));
  return section;
}

}  // namespace kvcal::report
