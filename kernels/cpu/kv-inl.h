// Dequantized rows of a KV cache. FP8 codes in vector code, compiled once per instruction set;
// see vector-inl.h. Stores elements of a KV cache. Extremes and histogram of one head.
#if defined(KVCAL_KERNELS_CPU_KV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_KV_INL_H_
#undef KVCAL_KERNELS_CPU_KV_INL_H_
#else
#define KVCAL_KERNELS_CPU_KV_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/kv_entry.h"
#include "kernels/cpu/vector-inl.h"
#include "kernels/with_type.h"
#include "quant/fp8.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Converts count elements from one float type to another.
template <class In, class Out>
HWY_INLINE void convert_row(const In* in, int64_t count, Out* out) {
  store_row(count, out, [in](auto at) HWY_ATTR { return at.load(in); });
}

/// FP8 code → float16 bits, without the correction of the exponent bias: every FP8 number fits into
/// float16 by a shift, and float16's conversion handles subnormals.
template <fp8::Format kFormat>
HWY_INLINE hn::Vec<DU16> half_bits(hn::Vec<DU16> code) {
  const DU16 d;
  if (kFormat == fp8::Format::kE5m2) return hn::ShiftLeft<8>(code);
  const auto magnitude = hn::And(code, hn::Set(d, uint16_t{0x7f}));
  const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d, uint16_t{0x80})));
  const auto bits = hn::Or(sign, hn::ShiftLeft<7>(magnitude));
  const auto is_nan = kFormat == fp8::Format::kE4m3Fn
                          ? hn::Eq(magnitude, hn::Set(d, uint16_t{0x7f}))
                          : hn::Eq(code, hn::Set(d, uint16_t{0x80}));
  return hn::IfThenElse(is_nan, hn::Set(d, uint16_t{0x7e00}), bits);
}

/// Remaining correction of the exponent bias: float16's is 15.
template <fp8::Format kFormat>
constexpr float kBiasScale = static_cast<float>(1 << (15 - fp8::layout_of(kFormat).bias));

/// scale · code, rounded once: products with powers of two are exact.
template <fp8::Format kFormat>
HWY_INLINE VF read_codes(hn::Vec<DU8> codes, VF scale) {
  const auto wide = hn::PromoteTo(DU16(), codes);
  return hn::Mul(scale, float_of_half(half_bits<kFormat>(wide)));
}

template <fp8::Format kFormat, class Out>
void read_fp8_row(const uint8_t* codes, int64_t count, float scale, Out* out) {
  const VF times = set(scale * kBiasScale<kFormat>);
  store_row(count, out,
            [=](auto at) HWY_ATTR { return read_codes<kFormat>(at.load_bytes(codes), times); });
}

/// Some rows of one head.
struct KvRows {
  KvDType dtype = KvDType::kFloat32;
  const std::byte* first = nullptr;
  int64_t row_stride = 0;  ///< in elements
  int64_t rows = 0, head_dim = 0;
  float scale = 1.0f;  ///< FP8 only
};

template <class Out>
HWY_INLINE void read_row(const KvRows& rows, const std::byte* row, Out* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(row);
  with_kv_type(rows.dtype, [&]<class T>(T) HWY_ATTR {
    if constexpr (CodesOf<T>::kAre)
      read_fp8_row<CodesOf<T>::kFormat>(codes, rows.head_dim, rows.scale, out);
    else
      convert_row(reinterpret_cast<const T*>(row), rows.head_dim, out);
  });
}

/// Converts rows to out [rows, head_dim], whose rows are out_stride apart.
template <class Out>
HWY_INLINE void read_kv(const KvRows& rows, Out* out, int64_t out_stride) {
  const int64_t stride = rows.row_stride * bytes_per_element(rows.dtype);
  for (int64_t row = 0; row < rows.rows; ++row)
    read_row(rows, rows.first + row * stride, out + row * out_stride);
}

HWY_INLINE VI magnitude_bits(VF v) {
  return hn::And(as_int(v), set_int(0x7fffffff));
}

/// fp8::encode as vector code, bit for bit.
template <fp8::Format kFormat>
HWY_INLINE VI encode(VF value) {
  constexpr fp8::Layout kLayout = fp8::layout_of(kFormat);
  constexpr int kDropped = 23 - kLayout.mantissa_bits;
  constexpr bool kIsFnuz = kLayout.nan_code == 0x80;
  constexpr int32_t kAnchor = (127 + 24 - kLayout.bias - kLayout.mantissa_bits) << 23;
  const VI bits = as_int(value);
  const VI sign = hn::And(hn::ShiftRight<24>(bits), set_int(0x80));
  const VI magnitude = hn::And(bits, set_int(0x7fffffff));
  const VI anchor = set_int(kAnchor);
  const VI tiny = hn::Sub(as_int(hn::Add(as_float(magnitude), as_float(anchor))), anchor);
  const VI odd = hn::And(hn::ShiftRight<kDropped>(magnitude), set_int(1));
  const VI rounded = hn::Add(magnitude, hn::Add(odd, set_int((1 << (kDropped - 1)) - 1)));
  VI code = hn::Sub(hn::ShiftRight<kDropped>(rounded),
                    set_int((127 - kLayout.bias) << kLayout.mantissa_bits));
  code = hn::IfThenElse(hn::Lt(magnitude, set_int((128 - kLayout.bias) << 23)), tiny, code);
  const VI largest = set_int(static_cast<int32_t>(bits_of(fp8::max_value(kFormat))));
  code = hn::IfThenElse(hn::Lt(magnitude, largest), code,
                        set_int(static_cast<int32_t>(kLayout.max_code)));
  VI full = hn::Or(sign, code);
  if (kIsFnuz) full = hn::IfThenElse(hn::Eq(code, set_int(0)), code, full);
  const VI nan = hn::Or(sign, set_int(static_cast<int32_t>(kLayout.nan_code)));
  return hn::IfThenElse(hn::Gt(magnitude, set_int(0x7f800000)), nan, full);
}

/// Codes of x / scale; counts the finite values over the largest code.
template <fp8::Format kFormat>
HWY_INLINE VI quantize(VF x, VF scale, uint64_t& saturated) {
  const VF scaled = hn::Div(x, scale);
  const auto over = hn::Gt(hn::Abs(scaled), set(fp8::max_value(kFormat)));
  const auto finite = hn::RebindMask(DF(), hn::Lt(magnitude_bits(x), set_int(0x7f800000)));
  saturated += hn::CountTrue(DF(), hn::And(over, finite));
  return encode<kFormat>(scaled);
}

/// Codes of count values; returns how many saturated.
template <fp8::Format kFormat, class T>
HWY_INLINE uint64_t quantize_row(const T* x, int64_t count, float scale, uint8_t* out) {
  const VF divisor = set(scale);
  uint64_t saturated = 0;
  for_vectors(count, [&](auto at) HWY_ATTR {
    at.store_bytes(quantize<kFormat>(at.load(x), divisor, saturated), out);
  });
  return saturated;
}

/// Stores one head of one token; returns how many values saturated.
HWY_INLINE uint64_t store_head(const StoreKvArgs& args, const float* x, int64_t head, int64_t out) {
  const int64_t head_dim = args.x.head_dim;
  return with_kv_type(args.dtype, [&]<class T>(T) HWY_ATTR -> uint64_t {
    if constexpr (CodesOf<T>::kAre) {
      auto* codes = static_cast<uint8_t*>(args.out) + out;
      return quantize_row<CodesOf<T>::kFormat>(x, head_dim, args.scales[head], codes);
    } else {
      convert_row(x, head_dim, static_cast<T*>(args.out) + out);
      return 0;
    }
  });
}

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
template <class MarkStyle>
HWY_INLINE void place_all(const float* x, int64_t count, BinWindow window, uint8_t* places,
                          const MarkStyle& look) {
  for_vectors(count, [&](auto at) HWY_ATTR {
    const VI step = step_of(at.load(x));
    const VI above = hn::Sub(step, set_int(kFirstStep + window.below));
    look(step, hn::And(hn::Gt(step, set_int(kFirstStep)), hn::Lt(above, set_int(1))));
    at.store_bytes(hn::Max(above, set_int(0)), places);
  });
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
