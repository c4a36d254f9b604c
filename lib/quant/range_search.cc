#include "quant/range_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quant/power.h"

namespace kvcal {
namespace {

double number(const Json& kwargs, const std::string& key, double otherwise) {
  const auto found = kwargs.find(key);
  if (found == kwargs.end() || found->is_null()) return otherwise;
  if (!found->is_number())
    fail("observer_kwargs.", key, ": found ", found->dump(), ", expected a number");
  return found->get<double>();
}

void check(const NumberRange& range, const char* key, double found) {
  if (!range.contains(found))
    fail("observer_kwargs.", key, ": found ", found, ", expected a number ",
         range.is_above ? "above " : "from ", static_cast<int64_t>(range.least), " to ",
         static_cast<int64_t>(range.most));
}

}  // namespace

MseOptions mse_options(const Json& observer_kwargs) {
  struct Setting {
    const char* key;
    double MseOptions::*value;
    NumberRange range;
  };
  constexpr Setting kSettings[] = {{"maxshrink", &MseOptions::maxshrink, kMaxshrinks},
                                   {"grid", &MseOptions::grid, kGrids},
                                   {"norm", &MseOptions::norm, kNorms},
                                   {"patience", &MseOptions::patience, kPatiences},
                                   {"expand", &MseOptions::expand, kExpands}};
  MseOptions options;
  for (const auto& [key, value, range] : kSettings)
    options.*value = number(observer_kwargs, key, options.*value);
  for (const auto& [key, value, range] : kSettings) check(range, key, options.*value);
  options.patience = std::trunc(options.patience);
  return options;
}

RangeSearch::RangeSearch(const MseOptions& options, size_t groups)
    : options_(options),
      steps_(static_cast<int64_t>(options.maxshrink * options.grid)),
      best_(groups, 1.0f),
      least_errors_(groups, std::numeric_limits<float>::max()) {}

std::optional<float> RangeSearch::next() {
  if (step_ >= steps_ || static_cast<double>(steps_without_gain_) >= options_.patience)
    return std::nullopt;
  factor_ = static_cast<float>(1.0 - static_cast<double>(step_++) / options_.grid);
  return factor_;
}

void RangeSearch::tell(std::span<const double> errors) {
  KVCAL_CHECK(errors.size() == best_.size());
  bool has_gained = false;
  for (size_t group = 0; group < errors.size(); ++group) {
    if (!(errors[group] < least_errors_[group])) continue;
    least_errors_[group] = errors[group];
    best_[group] = factor_;
    has_gained = true;
  }
  steps_without_gain_ = has_gained ? 0 : steps_without_gain_ + 1;
}

namespace {

constexpr int kBins = MagnitudeHistogram::kBins;

/// Magnitudes spread evenly from low to high.
struct Bin {
  double low = 0, high = 0, count = 0;
};

struct Bins {
  double zeros = 0, total = 0;  ///< counts: in bin 0; in all
  double largest = 0;
  std::vector<Bin> bins;  ///< with a count, from 1 up
};

Bins bins_of(const MagnitudeHistogram& histogram, Amax largest) {
  Bins found;
  int highest = -1;
  for (int b = 0; b < kBins; ++b) {
    const uint64_t count = histogram.counts[static_cast<size_t>(b)];
    if (count == 0) continue;
    highest = b;
    found.total += static_cast<double>(count);
    if (b == 0)
      found.zeros = static_cast<double>(count);
    else
      found.bins.push_back({MagnitudeHistogram::lower_edge(b),
                            MagnitudeHistogram::lower_edge(b + 1), static_cast<double>(count)});
  }
  if (highest < 0) fail("a histogram without counts, expected what was observed");
  if (!std::isfinite(largest.value) || largest.value < 0 ||
      MagnitudeHistogram::bin_of(largest.value) != highest)
    fail("the largest magnitude is ", largest.value,
         ", which is not in the highest bin with a count, from ",
         MagnitudeHistogram::lower_edge(highest));
  found.largest = largest.value;
  if (!found.bins.empty()) found.bins.back().high = found.largest;
  return found;
}

constexpr int kPlaces = 16;  ///< of a bin, which share its count

float place(const Bin& bin, int i) {
  return static_cast<float>(bin.low + (bin.high - bin.low) * (2 * i + 1) / (2 * kPlaces));
}

/// Sum of |x - scale x code|^norm over the places of each bin.
double error_of(const Bins& bins, Scale scale, const KvFormat& format, double norm) {
  double sum = 0;
  for (const Bin& bin : bins.bins) {
    double of_bin = 0;
    for (int i = 0; i < kPlaces; ++i) {
      const float x = place(bin, i);
      const float code = format.nearest(x / scale.value);
      of_bin += power(std::fabs(static_cast<double>(x) -
                                static_cast<double>(scale.value) * static_cast<double>(code)),
                      norm);
    }
    sum += bin.count * (of_bin / kPlaces);
  }
  return sum;
}

/// Part of a bin inside the cell of one code.
struct Piece {
  size_t cell;
  double width, count;
};

/// Divides the magnitudes up to `most` at the edges of the cells, which end at edges[cell].
std::vector<Piece> pieces_of(const Bins& bins, double most, const std::vector<double>& edges) {
  std::vector<Piece> pieces;
  size_t cell = 0;
  for (const Bin& bin : bins.bins) {
    const double end = std::min(bin.high, most), width = bin.high - bin.low;
    if (bin.low > most || (width > 0 && bin.low == most)) break;
    if (width == 0 && !pieces.empty()) {  // all of the highest bin is its lower edge
      pieces.back().count += bin.count;
      break;
    }
    while (edges[cell] <= bin.low && cell + 1 < edges.size()) ++cell;
    if (width == 0) pieces.push_back({cell, 0, bin.count});
    for (double at = bin.low; at < end;) {
      while (edges[cell] <= at && cell + 1 < edges.size()) ++cell;
      const double next = std::min(end, edges[cell]);
      pieces.push_back({cell, next - at, bin.count * ((next - at) / width)});
      at = next;
    }
  }
  return pieces;
}

/// KL(P || Q), in bits, for the range up to `most`. P is the observed distribution, with everything
/// above `most` in its last piece. Q is the quantized one: the count of each cell, without values
/// above, spread evenly over the cell's pieces. Infinite where Q is zero and P is not.
double divergence(const Bins& bins, double most, const std::vector<double>& values) {
  std::vector<double> edges;  // where the cells of codes end: halfway to the next code
  const double scale = most / values.back();
  for (size_t code = 0; code + 1 < values.size(); ++code)
    edges.push_back((values[code] + values[code + 1]) / 2 * scale);
  edges.push_back(most);
  const std::vector<Piece> pieces = pieces_of(bins, most, edges);
  std::vector<double> cell_counts(values.size(), 0.0), cell_widths(values.size(), 0.0);
  double kept = bins.zeros;
  for (const Piece& piece : pieces) {
    cell_counts[piece.cell] += piece.count;
    cell_widths[piece.cell] += piece.width;
    kept += piece.count;
  }
  const double above = std::max(0.0, bins.total - kept);
  if (pieces.empty() || kept <= 0) return std::numeric_limits<double>::infinity();
  double sum = bins.zeros / bins.total * log2_of(kept / bins.total);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const double seen = piece.count + (i + 1 == pieces.size() ? above : 0.0);
    const double share = cell_widths[piece.cell] > 0 ? piece.width / cell_widths[piece.cell] : 1.0;
    const double told = cell_counts[piece.cell] * share;
    if (seen <= 0) continue;
    if (told <= 0) return std::numeric_limits<double>::infinity();
    sum += seen / bins.total * log2_of(seen / bins.total * (kept / told));
  }
  return sum;
}

}  // namespace

Amax percentile_amax(const MagnitudeHistogram& histogram, Amax largest, double percent) {
  if (!kPercentiles.contains(percent))
    fail("percentile: found ", percent, ", expected a number above ", kPercentiles.least, " to ",
         kPercentiles.most);
  const Bins bins = bins_of(histogram, largest);
  const double wanted = percent / 100 * bins.total;
  double below = bins.zeros;
  if (percent == 100 || wanted <= below) return largest;
  for (const Bin& bin : bins.bins) {
    if (below + bin.count >= wanted) {
      const double at = bin.low + (bin.high - bin.low) * ((wanted - below) / bin.count);
      return {static_cast<float>(std::min(at, bins.largest))};
    }
    below += bin.count;
  }
  return largest;
}

Amax mse_amax(const MagnitudeHistogram& histogram, Amax largest, const KvFormat& format,
              const MseOptions& options) {
  const Bins bins = bins_of(histogram, largest);
  RangeSearch search(options, 1);
  const auto range = [&](float factor) {
    return Amax{largest.value * static_cast<float>(options.expand) * factor};
  };
  while (const std::optional<float> factor = search.next()) {
    const double error = error_of(bins, scale_from(range(*factor), format), format, options.norm);
    search.tell({&error, 1});
  }
  return range(search.best()[0]);
}

Amax entropy_amax(const MagnitudeHistogram& histogram, Amax largest, const KvFormat& format) {
  // 2^(-i/8), rounded to double.
  constexpr std::array<double, 8> kRoots{0x1p+0,
                                         0x1.d5818dcfba487p-1,
                                         0x1.ae89f995ad3adp-1,
                                         0x1.8ace5422aa0dbp-1,
                                         0x1.6a09e667f3bcdp-1,
                                         0x1.4bfdad5362a27p-1,
                                         0x1.306fe0a31b715p-1,
                                         0x1.172b83c7d517bp-1};
  const Bins bins = bins_of(histogram, largest);
  const std::vector<double> values = format.magnitudes();
  double best = bins.largest, least = std::numeric_limits<double>::infinity();
  for (int j = 0; j < 64 && !bins.bins.empty(); ++j) {
    const double range = std::ldexp(bins.largest * kRoots[static_cast<size_t>(j % 8)], -(j / 8));
    const double found = divergence(bins, range, values);
    if (!(found < least)) continue;
    least = found;
    best = range;
  }
  return {static_cast<float>(best)};
}

void CodeErrors::add(const CodeErrors& other) {
  values += other.values;
  clipped += other.clipped;
  to_zero += other.to_zero;
  squared_error += other.squared_error;
  squared += other.squared;
}

double CodeErrors::relative_error() const {
  return squared > 0 ? std::sqrt(squared_error / squared) : 0.0;
}

CodeErrors code_errors(const MagnitudeHistogram& histogram, Amax largest, Scale scale,
                       const KvFormat& format) {
  const Bins bins = bins_of(histogram, largest);
  CodeErrors errors{.values = bins.total};
  const double step = scale.value, most = step * static_cast<double>(format.holds());
  for (const Bin& bin : bins.bins)
    for (int i = 0; i < kPlaces; ++i) {
      const float x = place(bin, i);
      const double value = x, count = bin.count / kPlaces;
      const double coded = step * static_cast<double>(format.nearest(x / scale.value));
      if (value > most) errors.clipped += count;
      if (coded == 0.0) errors.to_zero += count;
      errors.squared_error += count * (value - coded) * (value - coded);
      errors.squared += count * value * value;
    }
  return errors;
}

}  // namespace kvcal
