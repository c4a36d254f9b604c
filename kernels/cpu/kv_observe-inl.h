// Extremes and histogram of one head. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_KV_OBSERVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_KV_OBSERVE_INL_H_
#undef KVCAL_KERNELS_CPU_KV_OBSERVE_INL_H_
#else
#define KVCAL_KERNELS_CPU_KV_OBSERVE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/kv_entry.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Some tokens of one head.
struct HeadRows {
  const float* x = nullptr;  ///< first value of the head in the first token
  int64_t tokens = 0, head_dim = 0, row_stride = 0;
  HWY_INLINE const float* row(int64_t t) const { return x + t * row_stride; }
};

/// Extremes of finite values, row by row.
class RangeFold {
 public:
  HWY_INLINE RangeFold() : min_(set(kInfinity)), max_(set(-kInfinity)) {}

  /// Row t of a head.
  HWY_INLINE void fold_row(const float* x, int64_t count, int64_t t) {
    // Separate from earlier rows, so that rows do not wait for each other.
    VF min = set(kInfinity), max = set(-kInfinity);
    VI largest = set_int(0);
    const auto fold = [&](VF v) HWY_ATTR {
      min = hn::Min(min, v);
      max = hn::Max(max, v);
      largest = hn::Max(largest, hn::And(as_int(v), set_int(0x7fffffff)));
    };
    int64_t i = 0;
    for (; i + lanes() <= count; i += lanes()) fold(load_as_float(x + i));
    if (const int64_t left = count - i; left > 0) {
      // The extra lanes repeat the last value, which changes neither extreme.
      float values[kMaxLanes];
      for (int64_t lane = 0; lane < lanes(); ++lane) values[lane] = x[i + std::min(lane, left - 1)];
      fold(load_as_float(values));
    }
    if (hn::AllTrue(DI(), hn::Lt(largest, set_int(0x7f800000)))) {
      min_ = hn::Min(min_, min);
      max_ = hn::Max(max_, max);
    } else {
      fold_nonfinite_row(x, count, t);
    }
  }
  bool is_finite() const { return first_nonfinite_ < 0; }
  /// Zeros are +0.
  HWY_INLINE ObservedRange range() const {
    return {.min = std::min(rest_min_, hn::GetLane(hn::MinOfLanes(DF(), min_))) + 0.0f,
            .max = std::max(rest_max_, hn::GetLane(hn::MaxOfLanes(DF(), max_))) + 0.0f,
            .first_nonfinite = static_cast<int32_t>(first_nonfinite_)};
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  HWY_NOINLINE void fold_nonfinite_row(const float* x, int64_t count, int64_t t) {
    if (first_nonfinite_ < 0) first_nonfinite_ = t;
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(x[i])) continue;
      rest_min_ = std::min(rest_min_, x[i]);
      rest_max_ = std::max(rest_max_, x[i]);
    }
  }

  VF min_, max_;
  float rest_min_ = kInfinity, rest_max_ = -kInfinity;  ///< of rows with NaN or infinity
  int64_t first_nonfinite_ = -1;
};

/// Window of bins that the table counts: place p > 0 is bin below + p.
struct BinWindow {
  int below = 0;
};

constexpr int32_t kFirstStep = (127 + MagnitudeHistogram::kMinExponent) << 3;

/// As MagnitudeHistogram::bin_of, in steps of an eighth octave from the smallest float32.
HWY_INLINE VI step_of(VF v) {
  const VI magnitude = hn::And(as_int(v), set_int(0x7fffffff));
  return hn::Min(hn::ShiftRight<20>(magnitude),
                 set_int(kFirstStep + MagnitudeHistogram::kBins - 1));
}

/// Places of count values. Calls look with each vector of steps, and with a mask of those between
/// bin 0 and the window.
template <class Look>
HWY_INLINE void place_all(const float* x, int64_t count, BinWindow window, uint8_t* places,
                          const Look& look) {
  const DU8 d8;
  const auto place = [&](VF v) HWY_ATTR {
    const VI step = step_of(v);
    const VI above = hn::Sub(step, set_int(kFirstStep + window.below));
    look(step, hn::And(hn::Gt(step, set_int(kFirstStep)), hn::Lt(above, set_int(1))));
    return hn::TruncateTo(d8, hn::BitCast(DU(), hn::Max(above, set_int(0))));
  };
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes())
    hn::StoreU(place(load_as_float(x + i)), d8, places + i);
  if (const int64_t left = count - i; left > 0) {
    uint8_t tail[kMaxLanes];
    hn::StoreU(place(load_part(x + i, left)), d8, tail);
    std::memcpy(places + i, tail, static_cast<size_t>(left));
  }
}

/// Places of one row; returns whether a value lies between bin 0 and the window.
HWY_INLINE bool place_row(const float* x, int64_t count, BinWindow window, uint8_t* places) {
  auto between = hn::Ne(set_int(0), set_int(0));
  place_all(x, count, window, places,
            [&](VI, auto is_between) HWY_ATTR { between = hn::Or(between, is_between); });
  return !hn::AllFalse(DI(), between);
}

/// Moves values between bin 0 and the window from place 0 to their bins.
HWY_NOINLINE inline void correct_row(const float* x, int64_t count, BinWindow window,
                                     BinCounts& counts) {
  for (int64_t i = 0; i < count; ++i) {
    const int bin = MagnitudeHistogram::bin_of(x[i]);
    const uint32_t between = bin > 0 && bin <= window.below ? 1 : 0;
    counts.bins[static_cast<size_t>(bin)] += between;
    counts.bins[0] -= between;  // modulo 2^32, until place 0 is added
  }
}

HWY_NOINLINE inline void count_pairs(int64_t count, BinCounts& counts) {
  const uint8_t* places = counts.places.data();
  uint16_t* pairs = counts.pairs.data();
  const auto add = [&](int64_t i, int64_t table) HWY_ATTR {
    uint16_t index;
    std::memcpy(&index, places + i, sizeof(index));
    ++pairs[index + table * BinCounts::kPlaces];
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    add(i, 0);
    add(i + 2, 1);
    add(i + 4, 0);
    add(i + 6, 1);
  }
  for (; i + 2 <= count; i += 2) add(i, 0);
}

/// Adds rows and columns of the tables to the bins, and clears them.
HWY_NOINLINE inline void add_pairs(BinWindow window, BinCounts& counts) {
  std::array<uint32_t, BinCounts::kPlaces> places;
  std::array<uint16_t, BinCounts::kPlaces> columns{};  // no more than kMaxValues / 2 each
  for (size_t r = 0; r < BinCounts::kPlaces; ++r) {
    uint16_t* row = counts.pairs.data() + r * BinCounts::kRowLength;
    uint16_t sum = 0;
    for (size_t c = 0; c < BinCounts::kPlaces; ++c) {
      const auto both = static_cast<uint16_t>(row[c] + row[c + BinCounts::kPlaces]);
      sum = static_cast<uint16_t>(sum + both);
      columns[c] = static_cast<uint16_t>(columns[c] + both);
      row[c] = row[c + BinCounts::kPlaces] = 0;
    }
    places[r] = sum;
  }
  counts.bins[0] += places[0] + columns[0];
  const size_t below = static_cast<size_t>(window.below);
  for (size_t p = 1; p < BinCounts::kPlaces && below + p < BinCounts::kBins; ++p)
    counts.bins[below + p] += places[p] + columns[p];
}

/// Adds the counts of place_row and correct_row for so many values to the bins.
HWY_INLINE void count_places(int64_t values, BinWindow window, BinCounts& counts) {
  count_pairs(values, counts);
  add_pairs(window, counts);
  if (values % 2 == 1) {  // the last one's place, which correct_row accounts for
    const size_t place = counts.places[static_cast<size_t>(values - 1)];
    ++counts.bins[place == 0 ? 0 : static_cast<size_t>(window.below) + place];
  }
}

HWY_NOINLINE inline void count_one_by_one(const HeadRows& rows, BinCounts& counts) {
  for (int64_t t = 0; t < rows.tokens; ++t)
    for (const float* x = rows.row(t); x < rows.row(t) + rows.head_dim; ++x)
      if (std::isfinite(*x)) ++counts.bins[static_cast<size_t>(MagnitudeHistogram::bin_of(*x))];
}

/// Window below the largest of finite values.
HWY_INLINE BinWindow window_of(const ObservedRange& range) {
  const float largest = std::max(-range.min, range.max);
  constexpr int kWidth = static_cast<int>(BinCounts::kPlaces) - 1;
  return {std::max(0, MagnitudeHistogram::bin_of(largest) - kWidth)};
}

/// Whether the tables pay off: for few values they do not, and they may be unset then.
HWY_INLINE bool has_table_size(int64_t values) {
  return values >= 1024 && values <= BinCounts::kMaxValues;
}
HWY_INLINE bool suits_tables(int64_t values, const ObservedRange& range) {
  return has_table_size(values) && range.first_nonfinite < 0;
}

/// Counts values into zeroed bins; range is that of the values.
HWY_NOINLINE inline void count_rows(const HeadRows& rows, const ObservedRange& range,
                                    BinCounts& counts) {
  const int64_t values = rows.tokens * rows.head_dim;
  if (!suits_tables(values, range)) return count_one_by_one(rows, counts);
  const BinWindow window = window_of(range);
  for (int64_t t = 0; t < rows.tokens; ++t)
    if (place_row(rows.row(t), rows.head_dim, window, counts.places.data() + t * rows.head_dim))
      correct_row(rows.row(t), rows.head_dim, window, counts);
  count_places(values, window, counts);
}

/// Places of contiguous values. Counts those between bin 0 and the window in their bins.
HWY_NOINLINE inline void place_values(const float* x, int64_t count, BinWindow window,
                                      BinCounts& counts) {
  const DI di;
  int32_t between[kMaxLanes];
  uint32_t corrected = 0;
  place_all(x, count, window, counts.places.data(), [&](VI step, auto is_between) HWY_ATTR {
    if (hn::AllFalse(di, is_between)) return;  // mostly, where values are not spread too far
    const size_t found =
        hn::CompressStore(hn::Sub(step, set_int(kFirstStep)), is_between, di, between);
    for (size_t i = 0; i < found; ++i) ++counts.bins[static_cast<size_t>(between[i])];
    corrected += static_cast<uint32_t>(found);
  });
  counts.bins[0] -= corrected;  // modulo 2^32, until place 0 is added
}

/// count_rows for contiguous values.
HWY_NOINLINE inline void count_values(const float* x, int64_t values, const ObservedRange& range,
                                      BinCounts& counts) {
  if (!suits_tables(values, range))
    return count_one_by_one({.x = x, .tokens = 1, .head_dim = values, .row_stride = values},
                            counts);
  const BinWindow window = window_of(range);
  place_values(x, values, window, counts);
  count_places(values, window, counts);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
