#include "report/checkpoint_charts.h"

#include <algorithm>
#include <cmath>

namespace kvcal::report {
namespace {

constexpr size_t kWorstLayers = 4;

double amax_of(const CacheTensor& tensor) {
  return tensor.amax ? static_cast<double>(*tensor.amax) : std::nan("");
}

/// The largest of the layer's scales.
double scale_of(const CacheTensor& tensor) {
  return tensor.scales.empty() ? std::nan("")
                               : static_cast<double>(std::ranges::max(tensor.scales));
}

void add_heads(std::vector<Plot>& plots, const CheckpointReport& report, const CacheSide& side) {
  const HeatMap map = heads_map(report, side);
  if (cells_of(map) > kMostCells) return;
  HeatDrawings drawings = draw_heat_map(map);
  if (drawings.blocks.empty()) return;
  drawings.blocks.push_back(std::move(drawings.key));
  plots.push_back({.name = map.id,
                   .title = map.what + " by layer and head",
                   .drawings = std::move(drawings.blocks)});
}

/// The share of values that codes lose: rounded to 0 or clipped.
double lost_share(const CacheTensor& tensor, const KvFormat& format) {
  const double to_zero = zero_share(tensor, format);
  return std::isnan(to_zero) ? 0.0 : to_zero + tensor.saturated.value_or(0.0);
}

void add_magnitudes(std::vector<Plot>& plots, const CheckpointReport& report) {
  struct Place {
    double lost;
    const CacheLayer* layer;
    const CacheSide* side;
  };
  std::vector<Place> places;
  for (const CacheLayer& layer : report.layers)
    for (const CacheSide& side : kCacheSides)
      if ((layer.*side.tensor).histogram)
        places.push_back({lost_share(layer.*side.tensor, report.format), &layer, &side});
  if (places.empty()) return;
  std::ranges::stable_sort(places, std::ranges::greater(), &Place::lost);
  places.resize(std::min(places.size(), kWorstLayers));
  const MagnitudeDomain domain = common_domain(report);
  Plot plot{.name = "magnitudes",
            .title = std::string("Magnitudes against ") +
                     (report.format.is_int8() ? "INT8" : "FP8") + "'s range, the worst layers",
            .legend = range_legend(),
            .definitions = magnitude_axes(domain)};
  for (const Place& place : places) {
    const Magnitudes magnitudes = magnitudes_of(report, *place.layer, *place.side, "worst-");
    plot.drawings.push_back(heading_drawing(magnitudes.id + "-heading", magnitudes.title));
    plot.drawings.push_back(draw_magnitudes(magnitudes, domain));
  }
  plots.push_back(std::move(plot));
}

}  // namespace

Fp8Range range_of(const CacheTensor& tensor, const KvFormat& format) {
  return fp8_range(scale_of(tensor), format);
}

double zero_share(const CacheTensor& tensor, const KvFormat& format) {
  if (tensor.scales.empty() || !tensor.histogram) return std::nan("");
  return shares_of(*tensor.histogram, range_of(tensor, format)).to_zero;
}

double outlier_ratio(const CacheTensor& tensor) {
  if (!tensor.amax || !tensor.histogram || tensor.histogram->counts.empty()) return std::nan("");
  const OctaveCounts& counts = *tensor.histogram;
  const double most = 0.999 * static_cast<double>(counts.total());
  size_t end = 1;
  while (end < counts.counts.size() && count_below(counts, counts.edge(end)) < most) ++end;
  return static_cast<double>(*tensor.amax) / counts.edge(end);
}

std::vector<std::string> layer_names(const CheckpointReport& report) {
  std::vector<std::string> names;
  for (const CacheLayer& layer : report.layers) names.push_back(std::to_string(layer.layer));
  return names;
}

SeriesChart scales_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "scales-chart",
                    .title = "Scales of K and V by layer",
                    .description =
                        "Circles: K scale. Squares: V scale; of scales of heads, the largest. "
                        "Dashes: the smallest scale that clips nothing, amax over the largest "
                        "code. Logarithmic; the numbers are in the table below.",
                    .values_title = "scale",
                    .places = layer_names(report)};
  const auto largest_code = static_cast<double>(report.format.largest_code());
  const auto add = [&](const CacheSide& side, const char* name, Mark mark, const auto& value) {
    Series series{.name = side.name + std::string(name), .css_class = side.css_class, .mark = mark};
    for (const CacheLayer& layer : report.layers)
      series.values.push_back(value(layer.*side.tensor));
    if (std::ranges::any_of(series.values, [](double one) { return one > 0.0; }))
      chart.series.push_back(std::move(series));
  };
  for (const CacheSide& side : kCacheSides) add(side, " scale", side.mark, scale_of);
  for (const CacheSide& side : kCacheSides)
    add(side, " amax / largest code", Mark::kDash,
        [&](const CacheTensor& tensor) { return amax_of(tensor) / largest_code; });
  return chart;
}

HeatMap heads_map(const CheckpointReport& report, const CacheSide& side) {
  HeatMap map{.id = std::string("heads-") + side.css_class,
              .what = std::string(side.name) + " amax"};
  for (const CacheLayer& layer : report.layers) {
    map.layers.push_back(layer.layer);
    map.rows.push_back((layer.*side.tensor).head_amax);
  }
  return map;
}

size_t cells_of(const HeatMap& map) {
  size_t cells = 0;
  for (const std::vector<float>& row : map.rows) cells += row.size();
  return cells;
}

Magnitudes magnitudes_of(const CheckpointReport& report, const CacheLayer& layer,
                         const CacheSide& side, const std::string& prefix) {
  const CacheTensor& tensor = layer.*side.tensor;
  return {.id = prefix + side.css_class + std::to_string(layer.layer),
          .title = std::string(side.name) + " magnitudes, layer " + std::to_string(layer.layer),
          .css_class = side.css_class,
          .counts = tensor.histogram ? &*tensor.histogram : nullptr,
          .scales = tensor.scales,
          .format = report.format,
          .amax = amax_of(tensor)};
}

MagnitudeDomain common_domain(const CheckpointReport& report) {
  std::vector<Magnitudes> all;
  for (const CacheLayer& layer : report.layers)
    for (const CacheSide& side : kCacheSides)
      if (const Magnitudes one = magnitudes_of(report, layer, side, ""); one.counts)
        all.push_back(one);
  return domain_of(all);
}

std::vector<Plot> checkpoint_plots(const CheckpointReport& report) {
  std::vector<Plot> plots;
  add_plot(plots, "scales", scales_chart(report));
  for (const CacheSide& side : kCacheSides) add_heads(plots, report, side);
  add_magnitudes(plots, report);
  add_plot(plots, "convergence", convergence_chart(report));
  add_plot(plots, "positions", positions_chart(report));
  add_plot(plots, "damage", damage_chart(report));
  return plots;
}

}  // namespace kvcal::report
