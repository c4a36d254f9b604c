#include "report/checkpoint_charts.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "quant/position_buckets.h"
#include "report/fp8_range.h"

namespace kvcal::report {
namespace {

double amax_of(const CacheTensor& tensor) {
  return tensor.amax ? static_cast<double>(*tensor.amax) : std::nan("");
}

/// The largest of the layer's scales.
double scale_of(const CacheTensor& tensor) {
  return tensor.scales.empty() ? std::nan("")
                               : static_cast<double>(std::ranges::max(tensor.scales));
}

bool has_number(const Series& series) {
  return std::ranges::any_of(series.values, [](double value) { return value > 0.0; });
}

/// Each layer's amax over the first samples as a share of its final one, the least first; layers
/// that have not seen those numbers of samples, or no magnitude, are left out.
std::vector<double> parts_of_final(const CheckpointReport& report, const CacheSide& side,
                                   const std::vector<int64_t>& num_samples, size_t place) {
  std::vector<double> parts;
  for (const CacheLayer& layer : report.layers) {
    const AmaxConvergence& seen = (layer.*side.tensor).convergence;
    if (is_known(seen) && seen.num_samples == num_samples)
      parts.push_back(part_of_final(seen, place));
  }
  std::ranges::sort(parts);
  return parts;
}

/// Each layer's amax by bucket of positions as a part of its largest.
std::vector<std::vector<double>> parts_by_position(const CheckpointReport& report,
                                                   const CacheSide& side, size_t buckets) {
  std::vector<std::vector<double>> parts;
  for (const CacheLayer& layer : report.layers) {
    const std::vector<float>& amax = (layer.*side.tensor).position_amax;
    if (amax.empty() || amax.size() != buckets) continue;
    const auto largest = static_cast<double>(std::ranges::max(amax));
    if (!(largest > 0.0)) continue;
    std::vector<double>& own = parts.emplace_back();
    for (const float one : amax) own.push_back(static_cast<double>(one) / largest);
  }
  return parts;
}

/// The last bucket against all before.
double late_growth(const std::vector<double>& parts) {
  if (parts.size() < 2) return 0.0;
  const double before = std::ranges::max(std::span(parts).first(parts.size() - 1));
  return before > 0.0 ? parts.back() / before : 0.0;
}

}  // namespace

bool is_known(const AmaxConvergence& convergence) {
  return !convergence.running.empty() &&
         convergence.running.size() == convergence.num_samples.size() &&
         convergence.running.back().value > 0.0f;
}

double part_of_final(const AmaxConvergence& convergence, size_t i) {
  return static_cast<double>(convergence.running[i].value) /
         static_cast<double>(convergence.running.back().value);
}

double limit_of(const CacheTensor& tensor, fp8::Format format) {
  if (tensor.scales.empty()) return std::nan("");
  return fp8_range(static_cast<double>(std::ranges::max(tensor.scales)), format).largest;
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
  const auto largest_code = static_cast<double>(fp8::max_value(report.format));
  std::vector<Series> needed;
  for (const CacheSide& side : kCacheSides) {
    const std::string name = side.name;
    Series held{.name = name + " scale",
                .css_class = side.css_class,
                .mark = name == "K" ? Mark::kCircle : Mark::kSquare};
    Series least{
        .name = name + " amax / largest code", .css_class = side.css_class, .mark = Mark::kDash};
    for (const CacheLayer& layer : report.layers) {
      held.values.push_back(scale_of(layer.*side.tensor));
      least.values.push_back(amax_of(layer.*side.tensor) / largest_code);
    }
    chart.series.push_back(std::move(held));
    needed.push_back(std::move(least));
  }
  chart.series.insert(chart.series.end(), needed.begin(), needed.end());
  std::erase_if(chart.series, [](const Series& series) { return !has_number(series); });
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

std::vector<std::string> position_names(size_t buckets) {
  std::vector<std::string> names;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const int64_t first = first_position(bucket), last = first_position(bucket + 1) - 1;
    names.push_back(std::to_string(first));
    if (last > first) names.back() += " – " + std::to_string(last);
  }
  return names;
}

SeriesChart positions_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "positions-chart",
                    .title = "How large K and V get, by position in the sample",
                    .description =
                        "For K and V the layer in the middle, and the layer whose last positions "
                        "are largest against those before. 1 is the amax of all positions.",
                    .places_title = "position",
                    .values_title = "amax at the positions / amax of all",
                    .spacing = Spacing::kLinear};
  size_t buckets = 0;
  for (const CacheLayer& layer : report.layers)
    buckets = std::max(buckets, layer.k.position_amax.size());
  chart.places = position_names(buckets);
  for (const CacheSide& side : kCacheSides) {
    const std::string name = side.name;
    const Mark mark = name == "K" ? Mark::kCircle : Mark::kSquare;
    const auto parts = parts_by_position(report, side, buckets);
    if (parts.empty()) continue;
    Series latest{name + ", the layer that grows most at the end", side.css_class, mark,
                  *std::ranges::max_element(parts, {}, late_growth)};
    Series middle{name + ", the median layer", side.css_class, Mark::kDash, {}};
    for (size_t bucket = 0; bucket < buckets; ++bucket) {
      std::vector<double> here;
      for (const std::vector<double>& layer : parts) here.push_back(layer[bucket]);
      std::ranges::sort(here);
      middle.values.push_back(here[here.size() / 2]);
    }
    chart.series.push_back(std::move(latest));
    chart.series.push_back(std::move(middle));
  }
  return chart;
}

SeriesChart convergence_chart(const CheckpointReport& report) {
  SeriesChart chart{.id = "convergence-chart",
                    .title = "How much of the final amax was seen, by number of samples",
                    .description =
                        "For K and V the layer that is furthest from its final amax, and the one "
                        "in the middle. 1 is the amax of all samples.",
                    .places_title = "samples",
                    .values_title = "amax over the first samples / final amax",
                    .spacing = Spacing::kLinear};
  const auto known = std::ranges::find_if(
      report.layers, [](const CacheLayer& layer) { return is_known(layer.k.convergence); });
  if (known == report.layers.end()) return chart;
  const std::vector<int64_t>& num_samples = known->k.convergence.num_samples;
  chart.places = place_names(num_samples);
  for (const CacheSide& side : kCacheSides) {
    const std::string name = side.name;
    const Mark mark = name == "K" ? Mark::kCircle : Mark::kSquare;
    Series worst{name + ", the worst layer", side.css_class, mark, {}};
    Series middle{name + ", the median layer", side.css_class, Mark::kDash, {}};
    for (size_t i = 0; i < chart.places.size(); ++i) {
      const std::vector<double> parts = parts_of_final(report, side, num_samples, i);
      worst.values.push_back(parts.empty() ? std::nan("") : parts.front());
      middle.values.push_back(parts.empty() ? std::nan("") : parts[parts.size() / 2]);
    }
    chart.series.push_back(std::move(worst));
    chart.series.push_back(std::move(middle));
  }
  return chart;
}

}  // namespace kvcal::report
