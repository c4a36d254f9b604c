#include <cmath>

#include "report/checkpoint_sections.h"
#include "report/heat_map.h"
#include "report/numbers.h"
#include "report/series_chart.h"

namespace kvcal::report {
namespace {

std::vector<int64_t> layer_numbers(const CheckpointReport& report) {
  std::vector<int64_t> layers;
  for (const CacheLayer& layer : report.layers) layers.push_back(layer.layer);
  return layers;
}

std::vector<Series> reach_series(const CheckpointReport& report) {
  Series k{.name = "K amax", .css_class = "k", .mark = Mark::kCircle, .values = {}};
  Series v{.name = "V amax", .css_class = "v", .mark = Mark::kSquare, .values = {}};
  Series k_limit{
      .name = "K limit: scale × largest code", .css_class = "k", .mark = Mark::kDash, .values = {}};
  Series v_limit = k_limit;
  v_limit.name = "V limit: scale × largest code";
  v_limit.css_class = "v";
  for (const CacheLayer& layer : report.layers) {
    const auto seen = [](const CacheTensor& tensor) {
      return tensor.amax ? static_cast<double>(*tensor.amax) : std::nan("");
    };
    k.values.push_back(seen(layer.k));
    v.values.push_back(seen(layer.v));
    k_limit.values.push_back(limit_of(layer.k, report.format));
    v_limit.values.push_back(limit_of(layer.v, report.format));
  }
  return {k, v, k_limit, v_limit};
}

Markup scales_table(const CheckpointReport& report) {
  TableMarkup table({.id = "scales-table",
                     .caption = "Scales, extremes, clipping and size of every layer",
                     .is_sortable = true},
                    {{"layer"},
                     {"K scale"},
                     {"V scale"},
                     {"K amax", "largest magnitude seen"},
                     {"V amax", "largest magnitude seen"},
                     {"K clipped", "share of values above scale × largest code"},
                     {"V clipped", "share of values above scale × largest code"},
                     {"dtype", "of the K weights"},
                     {"size"}});
  const auto amax = [](const CacheTensor& tensor) {
    return tensor.amax ? number_text(static_cast<double>(*tensor.amax)) : "–";
  };
  const auto clipped = [](const CacheTensor& tensor) {
    return share_text(tensor.saturated.value_or(std::nan("")));
  };
  for (const CacheLayer& layer : report.layers) {
    table.row(std::to_string(layer.layer), "layer-" + std::to_string(layer.layer));
    table.cell(range_text(layer.k.scales)).cell(range_text(layer.v.scales));
    table.cell(amax(layer.k)).cell(amax(layer.v));
    table.cell(clipped(layer.k)).cell(clipped(layer.v)).cell(layer.dtype);
    table.cell(byte_text(static_cast<double>(layer.bytes)), static_cast<double>(layer.bytes));
  }
  return table.finish();
}

/// Columns of clipped shares, K up and V down; nothing where none is clipped.
Series clipped_series(const CheckpointReport& report, const char* name, const char* css_class,
                      Mark mark, CacheTensor CacheLayer::*side) {
  Series series{.name = name, .css_class = css_class, .mark = mark, .values = {}};
  for (const CacheLayer& layer : report.layers)
    series.values.push_back((layer.*side).saturated.value_or(std::nan("")) * 100.0);
  return series;
}

Markup clipped_figure(const CheckpointReport& report) {
  SeriesChart chart{.id = "clipped-chart",
                    .title = "Clipped values by layer",
                    .description =
                        "Per cent of K and V above scale times the largest code; layers "
                        "without a mark clip nothing.",
                    .layers = layer_numbers(report),
                    .series = {}};
  chart.height = 220;
  chart.series = {
      clipped_series(report, "K clipped, per cent", "k", Mark::kCircle, &CacheLayer::k),
      clipped_series(report, "V clipped, per cent", "v", Mark::kSquare, &CacheLayer::v)};
  Markup drawings = draw_series(chart);
  if (drawings.empty()) {
    const bool is_known = !report.layers.empty() && report.layers[0].k.saturated;
    return is_known ? words("No value of any layer was clipped during calibration.") : Markup();
  }
  drawings.append(series_legend("clipped-mark", chart.series));
  return figure({.label = "Clipped values by layer",
                 .caption = "Values that a scale clips (per cent, logarithmic). An observer that "
                            "leaves extremes out buys precision for the rest with them.",
                 .drawings = drawings});
}

struct HeadSide {
  const char *id, *what;
  CacheTensor CacheLayer::*tensor;
};

HeatMap heat_map(const CheckpointReport& report, const HeadSide& side, bool of_scales) {
  HeatMap map{.id = side.id, .what = side.what, .layers = layer_numbers(report), .rows = {}};
  for (const CacheLayer& layer : report.layers) {
    const CacheTensor& tensor = layer.*side.tensor;
    map.rows.push_back(of_scales ? tensor.scales : tensor.head_amax);
  }
  return map;
}

size_t cells_of(const HeatMap& map) {
  size_t cells = 0;
  for (const std::vector<float>& row : map.rows) cells += row.size();
  return cells;
}

bool has_head_scales(const CheckpointReport& report) {
  for (const CacheLayer& layer : report.layers)
    if (layer.k.scales.size() > 1 || layer.v.scales.size() > 1) return true;
  return false;
}

}  // namespace

Section scales_section(const CheckpointReport& report) {
  Markup body;
  SeriesChart chart{.id = "scales-chart",
                    .title = "Largest magnitudes and limits of K and V by layer",
                    .description =
                        "Circles: K amax. Squares: V amax. Dashes: scale times the "
                        "largest code. Logarithmic; the numbers are in the table below.",
                    .layers = layer_numbers(report),
                    .series = reach_series(report)};
  Markup drawings = draw_series(chart);
  if (drawings.empty()) {
    body.append(words("The checkpoint has no scale and no extreme was kept."));
    if (!report.layers.empty()) body.append(scales_table(report));
    return {"scales", "Scales by layer", body};
  }
  std::erase_if(chart.series, [](const Series& series) {
    for (const double value : series.values)
      if (value > 0.0) return false;
    return true;
  });
  drawings.append(series_legend("scales-mark", chart.series));
  body.append(figure({.label = "Largest magnitudes by layer",
                      .caption = "The largest magnitude of K and V, and what FP8 reaches with the "
                                 "layer's scale. A dash below its mark clips, one above it leaves "
                                 "room.",
                      .drawings = drawings,
                      .numbers = folded("Numbers of all layers", scales_table(report))}));
  body.append(clipped_figure(report));
  return {"scales", "Scales by layer", body};
}

Section heads_section(const CheckpointReport& report) {
  Section section{"heads", "Heads", {}};
  const HeadSide amax_sides[] = {{"heads-k", "K amax", &CacheLayer::k},
                                 {"heads-v", "V amax", &CacheLayer::v}};
  const HeadSide scale_sides[] = {{"head-scales-k", "K scale", &CacheLayer::k},
                                  {"head-scales-v", "V scale", &CacheLayer::v}};
  Markup drawings, numbers;
  bool is_too_large = false;
  for (const HeadSide& side : amax_sides) {
    const HeatMap map = heat_map(report, side, false);
    if (cells_of(map) > kMostCells) is_too_large = true;
    if (cells_of(map) == 0 || is_too_large) continue;
    drawings.append(draw_heat_map(map));
    numbers.append(heat_map_table(map));
  }
  if (has_head_scales(report) && !is_too_large)
    for (const HeadSide& side : scale_sides)
      numbers.append(heat_map_table(heat_map(report, side, true)));
  if (is_too_large)
    section.body.append(words("There are too many heads to draw; inspect --json has the numbers."));
  else if (drawings.empty() && numbers.empty())
    section.body.append(words("No extremes of single heads were kept."));
  else
    section.body.append(figure(
        {.label = "Extremes by layer and head",
         .caption = "The largest magnitude of every KV head: a row a layer, a column a head. "
                    "A scale of the whole tensor follows the largest head; FP8 loses little of the "
                    "others unless they fall into its subnormals, thousands of times smaller.",
         .drawings = drawings,
         .numbers = numbers}));
  return section;
}

}  // namespace kvcal::report
