#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "quant/calibration.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/fp8_write-inl.h"
#include "kernels/cpu/kv_read-inl.h"
#include "kernels/cpu/vector-inl.h"

#ifndef KVCAL_KERNELS_CPU_KV_ONCE
#define KVCAL_KERNELS_CPU_KV_ONCE
namespace kvcal::cpu {

/// Counts of one head, in several tables: neighbours often meet in one bin, and each would wait for
/// the other's store. The last bin takes what is not finite.
struct LaneBins {
  static constexpr int64_t kBins = MagnitudeHistogram::kBins + 1;
  static constexpr int64_t kTables = 4;
  std::array<uint32_t, kTables * kBins> counts{};
};

/// One head of one segment.
struct ObserveTask {
  const float* x = nullptr;  ///< first value of the head in the first token
  int64_t tokens = 0, head_dim = 0, row_stride = 0;
};

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Extremes of the finite values seen in each lane.
struct LaneRange {
  VF min, max;
};

/// Folds values in and gives their bins; true when one of them is not finite.
HWY_INLINE bool fold(VF values, LaneRange& range, int32_t* bins) {
  const VF v = hn::Add(values, set(0.0f));  // -0 becomes +0, as in the reference
  const VI magnitude = magnitude_bits(v);
  const auto finite = hn::Lt(magnitude, set_int(0x7f800000));
  const auto is_finite = hn::RebindMask(DF(), finite);
  range.min = hn::IfThenElse(hn::And(is_finite, hn::Lt(v, range.min)), v, range.min);
  range.max = hn::IfThenElse(hn::And(is_finite, hn::Gt(v, range.max)), v, range.max);
  // As MagnitudeHistogram::bin_of.
  const VI step = hn::Sub(hn::ShiftRight<20>(magnitude),
                          set_int((127 + MagnitudeHistogram::kMinExponent) << 3));
  const VI bin = hn::Min(hn::Max(step, set_int(0)), set_int(MagnitudeHistogram::kBins - 1));
  hn::StoreU(hn::IfThenElse(finite, bin, set_int(MagnitudeHistogram::kBins)), DI(), bins);
  return !hn::AllTrue(DI(), finite);
}

HWY_INLINE void count(const int32_t* bins, int64_t values, LaneBins& counts) {
  uint32_t* table = counts.counts.data();
  constexpr int64_t kBins = LaneBins::kBins;
  int64_t i = 0;
  for (; i + LaneBins::kTables <= values; i += LaneBins::kTables) {
    ++table[bins[i]];
    ++table[kBins + bins[i + 1]];
    ++table[2 * kBins + bins[i + 2]];
    ++table[3 * kBins + bins[i + 3]];
  }
  for (; i < values; ++i) ++table[bins[i]];
}

ObservedRange observe_head(const ObserveTask& task, LaneBins& counts) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  LaneRange range{set(kInfinity), set(-kInfinity)};
  int64_t first_nonfinite = -1;
  int32_t bins[kMaxLanes];
  for (int64_t t = 0; t < task.tokens; ++t) {
    const float* x = task.x + t * task.row_stride;
    bool nonfinite = false;
    int64_t i = 0;
    for (; i + lanes() <= task.head_dim; i += lanes()) {
      nonfinite |= fold(load_as_float(x + i), range, bins);
      count(bins, lanes(), counts);
    }
    if (const int64_t left = task.head_dim - i; left > 0) {
      // The lanes behind repeat the last value, which changes neither extreme.
      float values[kMaxLanes];
      for (int64_t lane = 0; lane < lanes(); ++lane) values[lane] = x[i + std::min(lane, left - 1)];
      nonfinite |= fold(load_as_float(values), range, bins);
      count(bins, left, counts);
    }
    if (nonfinite && first_nonfinite < 0) first_nonfinite = t;
  }
  return {.min = hn::GetLane(hn::MinOfLanes(DF(), range.min)),
          .max = hn::GetLane(hn::MaxOfLanes(DF(), range.max)),
          .first_nonfinite = static_cast<int32_t>(first_nonfinite)};
}

/// One head of one token; how many values saturated.
HWY_INLINE uint64_t store_head(const StoreKvArgs& args, const float* x, int64_t head, int64_t out) {
  const int64_t head_dim = args.x.head_dim;
  switch (args.dtype) {
    case KvDType::kFloat32:
      convert_row(x, head_dim, static_cast<float*>(args.out) + out);
      return 0;
    case KvDType::kFloat16:
      convert_row(x, head_dim, static_cast<F16*>(args.out) + out);
      return 0;
    case KvDType::kBFloat16:
      convert_row(x, head_dim, static_cast<BF16*>(args.out) + out);
      return 0;
    default:
      break;
  }
  auto* codes = static_cast<uint8_t*>(args.out) + out;
  switch (fp8_format(args.dtype)) {
    case fp8::Format::kE4m3Fn:
      return quantize_row<fp8::Format::kE4m3Fn>(x, head_dim, args.scales[head], codes);
    case fp8::Format::kE4m3Fnuz:
      return quantize_row<fp8::Format::kE4m3Fnuz>(x, head_dim, args.scales[head], codes);
    case fp8::Format::kE5m2:
      break;
  }
  return quantize_row<fp8::Format::kE5m2>(x, head_dim, args.scales[head], codes);
}

void store_kv_rows(const StoreKvArgs& args, int64_t begin, int64_t end) {
  for (int64_t h = 0; h < args.x.heads; ++h) {
    uint64_t saturated = 0;
    for (int64_t t = begin; t < end; ++t)
      saturated += store_head(args, args.x.data + t * args.x.row_stride + h * args.x.head_dim, h,
                              (t * args.x.heads + h) * args.x.head_dim);
    if (saturated > 0 && args.saturated)
      std::atomic_ref(args.saturated[h]).fetch_add(saturated, std::memory_order_relaxed);
  }
}

template <class Out>
void load_kv_as(const LoadKvArgs& args, int64_t begin, int64_t end) {
  const int64_t row = args.heads * args.head_dim;
  for (int64_t h = 0; h < args.heads; ++h) {
    const int64_t first = begin * row + h * args.head_dim;
    read_kv({.dtype = args.dtype,
             .first = static_cast<const std::byte*>(args.x) + first * bytes_per_element(args.dtype),
             .row_stride = row,
             .rows = end - begin,
             .head_dim = args.head_dim,
             .scale = is_fp8(args.dtype) ? args.scales[h] : 1.0f},
            static_cast<Out*>(args.out) + first, row);
  }
}

void load_kv_rows(const LoadKvArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32) return load_kv_as<float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16) return load_kv_as<F16>(args, begin, end);
  load_kv_as<BF16>(args, begin, end);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(observe_head);
HWY_EXPORT(store_kv_rows);
HWY_EXPORT(load_kv_rows);

namespace {

void add_counts(const LaneBins& counts, uint64_t* histogram) {
  for (size_t bin = 0; bin < MagnitudeHistogram::kBins; ++bin) {
    uint64_t total = 0;
    for (size_t table = 0; table < LaneBins::kTables; ++table)
      total += counts.counts[table * LaneBins::kBins + bin];
    // Whole numbers: any order of the additions gives the same sum.
    if (total > 0) std::atomic_ref(histogram[bin]).fetch_add(total, std::memory_order_relaxed);
  }
}

}  // namespace

void CpuBackend::observe_kv(const ObserveKvArgs& args) {
  check_observe_kv(args);
  const int64_t heads = args.x.heads;
  pool_.parallel_for(static_cast<int64_t>(args.segments.size()) * heads, [&](int64_t task, int) {
    const Segment& segment = args.segments[static_cast<size_t>(task / heads)];
    const int64_t head = task % heads;
    LaneBins counts;
    args.ranges[task] = HWY_DYNAMIC_DISPATCH(observe_head)(
        {.x = args.x.data + segment.q_begin * args.x.row_stride + head * args.x.head_dim,
         .tokens = segment.q_count,
         .head_dim = args.x.head_dim,
         .row_stride = args.x.row_stride},
        counts);
    add_counts(counts, args.histogram + head * MagnitudeHistogram::kBins);
  });
}

void CpuBackend::store_kv(const StoreKvArgs& args) {
  check_store_kv(args);
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(store_kv_rows)(args, begin, end);
  });
}

void CpuBackend::load_kv(const LoadKvArgs& args) {
  check_load_kv(args);
  for_row_blocks(args.rows, args.heads * args.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(load_kv_rows)(args, begin, end);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
