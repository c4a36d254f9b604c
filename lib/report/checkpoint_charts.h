#pragma once

#include "report/checkpoint_report.h"
#include "report/heat_map.h"
#include "report/magnitudes.h"
#include "report/series_chart.h"

/// Charts of a checkpoint's sections and plots.
namespace kvcal::report {

/// K or V of a layer.
struct CacheSide {
  const char *name, *css_class;
  CacheTensor CacheLayer::*tensor;
};
inline constexpr CacheSide kCacheSides[] = {{"K", "k", &CacheLayer::k}, {"V", "v", &CacheLayer::v}};

/// scale * largest code of the largest scale; NaN without a scale.
double limit_of(const CacheTensor& tensor, fp8::Format format);

std::vector<std::string> layer_names(const CheckpointReport& report);

/// amax and limits by layer, those that are known.
SeriesChart scales_chart(const CheckpointReport& report);

/// amax of every head.
HeatMap heads_map(const CheckpointReport& report, const CacheSide& side);
size_t cells_of(const HeatMap& map);

/// The histogram of a layer's K or V; counts is null where it was not kept.
Magnitudes magnitudes_of(const CheckpointReport& report, const CacheLayer& layer,
                         const CacheSide& side, const std::string& prefix);
/// The domain of both sides of all layers, so that every strip has the same axis.
MagnitudeDomain common_domain(const CheckpointReport& report);

/// Whether it says how an amax that is not 0 came about.
bool is_known(const AmaxConvergence& convergence);
/// The amax over the first num_samples[i] samples as a part of the final one.
double part_of_final(const AmaxConvergence& convergence, size_t i);

/// How near the amax of the median and of the worst layer is to the final one, by samples.
SeriesChart convergence_chart(const CheckpointReport& report);

/// Error of attention's output by layer, with the scales and with 1.0.
SeriesChart damage_chart(const CheckpointReport& report);
/// The same of every head, with the scales.
HeatMap damage_map(const CheckpointReport& report);

/// The names of buckets of positions: "0", "4 – 5".
std::vector<std::string> position_names(size_t buckets);
/// How large K and V get by position, as a part of the layer's amax: the layer in the middle, and
/// the one that grows most at the last positions.
SeriesChart positions_chart(const CheckpointReport& report);

}  // namespace kvcal::report
