#include <cmath>

#include "core/number_text.h"
#include "report/checkpoint_charts.h"
#include "report/checkpoint_sections.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

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
  Series series{.name = name, .css_class = css_class, .mark = mark};
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
                    .places = layer_names(report)};
  chart.height = 220;
  chart.series = {
      clipped_series(report, "K clipped, per cent", "k", Mark::kCircle, &CacheLayer::k),
      clipped_series(report, "V clipped, per cent", "v", Mark::kSquare, &CacheLayer::v)};
  const Drawing drawing = draw_series(chart);
  if (drawing.content.empty()) {
    const bool is_known = !report.layers.empty() && report.layers[0].k.saturated;
    return is_known ? words("No value of any layer was clipped during calibration.") : Markup();
  }
  Markup drawings = framed(drawing);
  drawings.append(legend_list("clipped-mark", series_legend(chart.series)));
  return figure({.label = "Clipped values by layer",
                 .caption = "Values that a scale clips (per cent, logarithmic). An observer that "
                            "leaves extremes out buys precision for the rest with them.",
                 .drawings = drawings});
}

/// The scales where each head has one.
Markup head_scales_table(const CheckpointReport& report, const CacheSide& side) {
  HeatMap map = heads_map(report, side);
  map.id = std::string("head-scales-") + side.css_class;
  map.what = std::string(side.name) + " scale";
  for (size_t i = 0; i < report.layers.size(); ++i)
    map.rows[i] = (report.layers[i].*side.tensor).scales;
  return heat_map_table(map);
}

bool has_head_scales(const CheckpointReport& report) {
  for (const CacheLayer& layer : report.layers)
    if (layer.k.scales.size() > 1 || layer.v.scales.size() > 1) return true;
  return false;
}

}  // namespace

Section scales_section(const CheckpointReport& report) {
  Markup body;
  const SeriesChart chart = scales_chart(report);
  const Drawing drawing = draw_series(chart);
  if (drawing.content.empty()) {
    body.append(words("The checkpoint has no scale and no extreme was kept."));
    if (!report.layers.empty()) body.append(scales_table(report));
    return {"scales", "Scales by layer", body};
  }
  Markup drawings = framed(drawing);
  drawings.append(legend_list("scales-mark", series_legend(chart.series)));
  body.append(figure({.label = "Scales by layer",
                      .caption = "The scales of K and V, and, as dashes, the smallest scale with "
                                 "which FP8 reaches the largest magnitude seen. A mark below its "
                                 "dash clips, one above it leaves room.",
                      .drawings = drawings,
                      .numbers = folded("Numbers of all layers", scales_table(report))}));
  body.append(clipped_figure(report));
  return {"scales", "Scales by layer", body};
}

Section heads_section(const CheckpointReport& report) {
  Section section{"heads", "Heads"};
  Markup drawings, numbers;
  bool is_too_large = false;
  for (const CacheSide& side : kCacheSides) {
    const HeatMap map = heads_map(report, side);
    if (cells_of(map) > kMostCells) is_too_large = true;
    if (cells_of(map) == 0 || is_too_large) continue;
    drawings.append(heat_map_part(map));
    numbers.append(heat_map_table(map));
  }
  if (has_head_scales(report) && !is_too_large)
    for (const CacheSide& side : kCacheSides) numbers.append(head_scales_table(report, side));
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
