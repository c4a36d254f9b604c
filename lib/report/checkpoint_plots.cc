#include <algorithm>

#include "report/checkpoint_charts.h"
#include "report/fp8_range.h"

namespace kvcal::report {
namespace {

constexpr size_t kWorstLayers = 4;

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

/// The share of values that FP8 loses: rounded to 0 or clipped.
double lost_share(const CacheTensor& tensor, fp8::Format format) {
  if (!tensor.histogram || tensor.scales.empty()) return 0.0;
  const auto scale = static_cast<double>(std::ranges::max(tensor.scales));
  return shares_of(*tensor.histogram, fp8_range(scale, format)).to_zero +
         tensor.saturated.value_or(0.0);
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
            .title = "Magnitudes against FP8's range, the worst layers",
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
