#pragma once

#include <string>
#include <vector>

#include "quant/fp8.h"
#include "quant/octave_counts.h"
#include "report/legend.h"

namespace kvcal::report {

/// Magnitudes of one tensor against what FP8 can say with its scales.
struct Magnitudes {
  std::string id, title;
  std::string css_class;  ///< "k" or "v"
  const OctaveCounts* counts = nullptr;
  std::vector<float> scales;  ///< empty: no scale, no range is drawn
  fp8::Format format = fp8::Format::kE4m3Fn;
  double amax = 0;
};

/// Magnitudes that all strips of a page show, so that they compare.
struct MagnitudeDomain {
  double least = 0, largest = 0;
  int lowest_decade = -2;  ///< of shares
};
MagnitudeDomain domain_of(const std::vector<Magnitudes>& all);

/// A small histogram for a row of a table: shares as heights, the largest one full.
Markup draw_strip(const Magnitudes& magnitudes, const MagnitudeDomain& domain);
/// Ticks to stand over the strips.
Markup draw_strip_axis(const std::string& id, const MagnitudeDomain& domain);
/// The axes of all large histograms, once in a page or file: they name them.
Markup magnitude_axes(const MagnitudeDomain& domain);
/// The same at large, with shares in powers of ten, the codes' octaves and words.
Drawing draw_magnitudes(const Magnitudes& magnitudes, const MagnitudeDomain& domain);
/// The meaning of the hatchings of both.
Legend range_legend();

}  // namespace kvcal::report
