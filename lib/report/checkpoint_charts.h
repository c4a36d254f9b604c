#pragma once

#include "quant/kv_format.h"
#include "report/charts.h"
#include "report/checkpoint_drawings.h"
#include "report/checkpoint_report.h"
#include "report/page.h"

/// Charts that a checkpoint's page and plots share, and the sections of the page. Each section says
/// in words what is missing where there is nothing to show.
namespace kvcal::report {

/// K or V of a layer.
struct CacheSide {
  const char *name, *css_class;
  Mark mark;
  CacheTensor CacheLayer::*tensor;
};
inline constexpr CacheSide kCacheSides[] = {{"K", "k", Mark::kCircle, &CacheLayer::k},
                                            {"V", "v", Mark::kSquare, &CacheLayer::v}};

/// What FP8 codes with the layer's largest scale can say; NaN without a scale.
Fp8Range range_of(const CacheTensor& tensor, const KvFormat& format);
/// The share of values that the coarsest scale rounds to 0; NaN where it is not known.
double zero_share(const CacheTensor& tensor, const KvFormat& format);

/// How many times the amax is what 999 of 1,000 values stay below, about; NaN where it is not
/// known.
double outlier_ratio(const CacheTensor& tensor);
/// "position 0 of record 12: “<s>”", "positions 96 – 127 of record 3"
std::string place_words(const LargestToken& token);

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

/// How near the amax of the median and of the worst layer is to the final one, by samples.
SeriesChart convergence_chart(const CheckpointReport& report);
/// How large K and V get by position, as a part of the layer's amax: the layer in the middle, and
/// the one that grows most at the last positions.
SeriesChart positions_chart(const CheckpointReport& report);
/// Error of attention's output by layer, with the scales and with 1.0.
SeriesChart damage_chart(const CheckpointReport& report);

Section scales_section(const CheckpointReport& report);
Section heads_section(const CheckpointReport& report);
Section magnitudes_section(const CheckpointReport& report);
Section damage_section(const CheckpointReport& report);
Section convergence_section(const CheckpointReport& report);
Section positions_section(const CheckpointReport& report);
Section layers_section(const CheckpointReport& report);
Section weights_section(const CheckpointReport& report);

}  // namespace kvcal::report
