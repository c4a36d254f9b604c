#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quant/kv_format.h"
#include "quant/observations.h"
#include "report/axis.h"
#include "report/page.h"

namespace kvcal::report {

/// One number a head and layer, drawn as darkness, height of the cell's filling and, where there is
/// room, digits.
struct HeatMap {
  std::string id;    ///< of its drawings; the table of its numbers has the id `<id>-numbers`
  std::string what;  ///< "K amax"
  std::vector<int64_t> layers = {};
  std::vector<std::vector<float>> rows = {};  ///< [layers][heads]; a row may be empty
};

/// Cells more than this are not drawn: no model has so many, and pages stay small.
inline constexpr size_t kMostCells = 40'000;

/// Blocks of layers and the key of their levels; no block where no number is positive, no content
/// of the key where all are equal.
struct HeatDrawings {
  Drawing key;
  std::vector<Drawing> blocks;
};
HeatDrawings draw_heat_map(const HeatMap& map);

/// The drawings in a part of a page, blocks wrapping, and read cell by cell by the page's script;
/// nothing where there is none.
Markup heat_map_part(const HeatMap& map);

Markup heat_map_table(const HeatMap& map);

/// Magnitudes of one tensor against what FP8 can say with its scales.
struct Magnitudes {
  std::string id, title;
  std::string css_class;  ///< "k" or "v"
  const OctaveCounts* counts = nullptr;
  std::vector<float> scales;  ///< empty: no scale, no range is drawn
  KvFormat format = fp8::Format::kE4m3Fn;
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

/// Magnitudes at which what a code with this scale can say changes.
struct Fp8Range {
  double to_zero = 0;  ///< below: the code is 0
  double normal = 0;   ///< below: subnormal, fewer bits the smaller the value
  double largest = 0;  ///< above: clipped
};
/// INT8 has no subnormal codes.
Fp8Range fp8_range(double scale, const KvFormat& format);

/// Shares of all counted values, about: counts are taken to be even inside half an octave.
struct RangeShares {
  double to_zero = 0;    ///< rounded to 0, zeros themselves too
  double subnormal = 0;  ///< kept with fewer bits
};
RangeShares shares_of(const OctaveCounts& counts, const Fp8Range& range);

}  // namespace kvcal::report
