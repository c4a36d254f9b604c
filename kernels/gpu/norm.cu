#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

// A short row belongs to one warp, a longer one to one block. Up to kKeptWidth, a thread keeps its
// part of the row in registers; longer rows are read again.
constexpr int kChunks = 4;  ///< fours a thread keeps
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kWarpWidth = 4 * kChunks * kWarp;
constexpr int64_t kKeptWidth = 4 * kChunks * kMostThreads;
constexpr int64_t kRowsOfWarps = 8;  ///< rows of a block of warps

/// Threads of one row. They depend only on the row's width, because they determine the order of its
/// sum.
int64_t threads_of_row(int64_t width) {
  if (width <= kWarpWidth) return kWarp;
  return smaller(kMostThreads, ceil_div(width, int64_t{4 * kChunks * kWarp}) * kWarp);
}

/// This thread's part of its row.
template <bool kWide>
struct RowPart {
  int64_t row = 0;
  int threads = 0, me = 0, width = 0;

  __device__ RowPart(int row_threads, int64_t rows, int64_t row_width) : threads(row_threads) {
    const int of_block = static_cast<int>(blockDim.x) / threads;
    const int in_block = static_cast<int>(threadIdx.x) / threads;
    me = static_cast<int>(threadIdx.x) % threads;
    row = int64_t{blockIdx.x} * of_block + in_block;
    // Threads without a row still reach the barriers.
    width = row < rows ? static_cast<int>(row_width) : 0;
    if (width == 0) row = 0;
  }
  /// Calls body(chunk, i) for the fours at element i; chunk is 0 where they are not kept in
  /// registers.
  template <class Body>
  __device__ void each(const Body& body) const {
    if constexpr (kWide) {
      for (int i = 4 * me; i < width; i += 4 * threads) body(0, i);
    } else {
      KVCAL_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int i = 4 * (chunk * threads + me);
        if (i < width) body(chunk, i);
      }
    }
  }
  __device__ float sum(float value) const {
    return threads == kWarp ? warp_sum(value) : block_sum(value);
  }
};

/// Mean to subtract from each value of a row, and the factor after it.
struct RowScale {
  float mean = 0.0f, inverse = 1.0f;
};

/// Computes the row's scale; value(chunk, i) gives the four values at element i. All threads of the
/// row must call it.
template <bool kAligned, bool kWide, class Value>
__device__ RowScale scale_of(const RowPart<kWide>& part, int64_t width, bool centered,
                             float epsilon, const Value& value) {
  const float count = static_cast<float>(width);
  RowScale scale;
  if (centered) {
    float sum = 0.0f;
    part.each([&](int chunk, int i) {
      const Four x = value(chunk, i);  // zeros behind the end
      sum += (x.values[0] + x.values[1]) + (x.values[2] + x.values[3]);
    });
    scale.mean = part.sum(sum) / count;
  }
  float squares = 0.0f;
  part.each([&](int chunk, int i) {
    const Four x = value(chunk, i);
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float off = x.values[j] - scale.mean;
      if (kAligned || i + j < part.width) squares = fmaf(off, off, squares);
    }
  });
  scale.inverse = 1.0f / sqrtf(part.sum(squares) / count + epsilon);
  return scale;
}

__device__ Four normed(const Four& x, const RowScale& scale, const Four& weight) {
  Four result;
  KVCAL_UNROLL
  for (int j = 0; j < 4; ++j)
    result.values[j] = (x.values[j] - scale.mean) * scale.inverse * weight.values[j];
  return result;
}
__device__ Four plus(const Four& a, const Four& b) {
  Four result;
  KVCAL_UNROLL
  for (int j = 0; j < 4; ++j) result.values[j] = a.values[j] + b.values[j];
  return result;
}

/// Calls out(i, result(chunk, i)) for every four. Computes all kept values before the first write,
/// because a read after a write would wait for it.
template <bool kWide, class Result, class Out>
__device__ void write_row(const RowPart<kWide>& part, Four (&kept)[kChunks], const Result& result,
                          const Out& out) {
  if constexpr (kWide) {
    part.each([&](int chunk, int i) { out(i, result(chunk, i)); });
  } else {
    part.each([&](int chunk, int i) { kept[chunk] = result(chunk, i); });
    part.each([&](int chunk, int i) { out(i, kept[chunk]); });
  }
}

/// Parameters of a row's norm.
struct RowNorm {
  const float* weight = nullptr;
  const float* bias = nullptr;  ///< or null
  bool centered = false;
  float epsilon = 0.0f;
  int64_t width = 0;
  AmaxSlot seen = {};
};

/// Writes the norm of the row to out. All threads of the block must call it.
template <bool kAligned, bool kWide, class T, class Value>
__device__ void write_norm(const RowPart<kWide>& part, Four (&kept)[kChunks], const RowNorm& norm,
                           const Value& value, T* out) {
  const RowScale scale = scale_of<kAligned>(part, norm.width, norm.centered, norm.epsilon, value);
  ThreadAmax seen;
  write_row(
      part, kept,
      [&](int chunk, int i) {
        const int left = part.width - i;
        const Four result =
            normed(value(chunk, i), scale, load_four<kAligned>(norm.weight + i, left));
        return norm.bias ? plus(result, load_four<kAligned>(norm.bias + i, left)) : result;
      },
      [&](int i, const Four& result) {
        const auto written = store_four<kAligned>(out + i, result, part.width - i);
        if (norm.seen.amax) see_four<kAligned>(written, part.width - i, seen);
      });
  fold_seen_of_block(norm.seen, seen);
}

/// Rows of norm and norm_heads: row r is head r % heads of token r / heads.
struct NormRows {
  const float* x = nullptr;
  int64_t heads = 1, row_stride = 0;
  const float* weight = nullptr;
  int64_t weight_stride = 0;  ///< from a head's to the next one's, and bias'; 0: they share one
  const float* bias = nullptr;
  bool centered = false;
  float epsilon = 0.0f;
  int64_t rows = 0, width = 0;
  ComputeType out_type = ComputeType::kFloat32;
  void* out = nullptr;  ///< laid out as x; may be x
  AmaxSlot seen = {};
};

template <class T, bool kAligned, bool kWide>
__global__ void __launch_bounds__(1024) norm_kernel(NormRows args, int row_threads) {
  const RowPart<kWide> part(row_threads, args.rows, args.width);
  const auto [token, head] = place_of(part.row, args.heads);
  const int64_t offset = token * args.row_stride + head * args.width;
  const float* x = args.x + offset;
  const float* weight = args.weight + head * args.weight_stride;
  const float* bias = args.bias ? args.bias + head * args.weight_stride : nullptr;
  T* out = static_cast<T*>(args.out) + offset;
  const auto load = [&](const float* from, int i) {
    return load_four<kAligned>(from + i, part.width - i);
  };
  Four kept[kChunks] = {};
  if constexpr (!kWide) part.each([&](int chunk, int i) { kept[chunk] = load(x, i); });
  const auto value = [&](int chunk, int i) { return kWide ? load(x, i) : kept[chunk]; };
  write_norm<kAligned>(
      part, kept, {weight, bias, args.centered, args.epsilon, args.width, args.seen}, value, out);
}

template <class T, bool kAligned, bool kWide>
__global__ void __launch_bounds__(1024)
    residual_norm_kernel(ResidualNormArgs args, int row_threads) {
  const RowPart<kWide> part(row_threads, args.rows, args.width);
  const float* x = args.x + part.row * args.width;
  float* hidden = args.hidden + part.row * args.width;
  T* out = static_cast<T*>(args.out) + part.row * args.width;
  const auto load = [&](const float* from, int i) {
    return load_four<kAligned>(from + i, part.width - i);
  };
  Four kept[kChunks] = {}, before[kChunks] = {};
  if constexpr (!kWide)
    part.each([&](int chunk, int i) {
      kept[chunk] = load(x, i);
      before[chunk] = load(hidden, i);
    });
  const auto of_x = [&](int chunk, int i) { return kWide ? load(x, i) : kept[chunk]; };
  RowScale scale;
  if (args.output_weight)
    scale = scale_of<kAligned>(part, args.width, args.centered, args.epsilon, of_x);
  write_row(
      part, kept,
      [&](int chunk, int i) {
        Four added = of_x(chunk, i);
        if (args.output_weight) added = normed(added, scale, load(args.output_weight, i));
        KVCAL_UNROLL
        for (int j = 0; j < 4; ++j) added.values[j] = args.multiplier * added.values[j];
        return plus(kWide ? load(hidden, i) : before[chunk], added);
      },
      [&](int i, const Four& sum) { store_four<kAligned>(hidden + i, sum, part.width - i); });
  if (!args.next_weight) return;
  const auto of_hidden = [&](int chunk, int i) { return kWide ? load(hidden, i) : kept[chunk]; };
  write_norm<kAligned>(
      part, kept,
      {args.next_weight, args.next_bias, args.centered, args.epsilon, args.width, args.seen},
      of_hidden, out);
}

/// Row r is group r % groups of token r / groups.
template <class T, bool kAligned, bool kWide>
__global__ void __launch_bounds__(1024) gated_norm_kernel(GatedNormArgs args, int row_threads) {
  const RowPart<kWide> part(row_threads, args.rows * args.groups, args.width);
  const auto [token, group] = place_of(part.row, args.groups);
  const int64_t first = group * args.width;
  const float* x = args.x.data + token * args.x.row_stride + first;
  const float* gate = args.gate.data + token * args.gate.row_stride + first;
  const float* weight = args.weight + (args.weight_per_group ? first : 0);
  T* out = static_cast<T*>(args.out) + part.row * args.width;
  const auto load = [&](const float* from, int i) {
    return load_four<kAligned>(from + i, part.width - i);
  };
  const auto gated = [&](const Four& value, const Four& by) {
    Four result;
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j)
      result.values[j] = value.values[j] * gate_of(args.function, by.values[j]);
    return result;
  };
  Four kept[kChunks] = {}, gates[kChunks] = {};
  if constexpr (!kWide) {
    part.each([&](int chunk, int i) {
      kept[chunk] = load(x, i);
      gates[chunk] = load(gate, i);
    });
    if (args.gate_first)
      part.each([&](int chunk, int) { kept[chunk] = gated(kept[chunk], gates[chunk]); });
  }
  const auto value = [&](int chunk, int i) {
    if constexpr (!kWide) return kept[chunk];
    return args.gate_first ? gated(load(x, i), load(gate, i)) : load(x, i);
  };
  const RowScale scale = scale_of<kAligned>(part, args.width, false, args.epsilon, value);
  ThreadAmax seen;
  write_row(
      part, kept,
      [&](int chunk, int i) {
        const Four result = normed(value(chunk, i), scale, load(weight, i));
        return args.gate_first ? result : gated(result, kWide ? load(gate, i) : gates[chunk]);
      },
      [&](int i, const Four& result) {
        const auto written = store_four<kAligned>(out + i, result, part.width - i);
        if (args.seen.amax) see_four<kAligned>(written, part.width - i, seen);
      });
  fold_seen_of_block(args.seen, seen);
}

/// Launches kernel_of(element type, aligned, wide), which is a kernel on rows, with args.
template <class Args, class KernelOf>
void start_rows(const char* what, Stream& stream, int64_t rows, bool aligned, const Args& args,
                const KernelOf& kernel_of) {
  const int64_t width = args.width;
  KVCAL_CHECK(width < int64_t{1} << 28);
  const int64_t row_threads = threads_of_row(width);
  const int64_t of_block = row_threads == kWarp ? kRowsOfWarps : 1;
  const Launch where{.stream = stream,
                     .blocks = ceil_div(rows, of_block),
                     .threads = static_cast<unsigned>(row_threads * of_block)};
  with_type(args.out_type, [&](auto element) {
    constexpr std::true_type kYes;
    constexpr std::false_type kNo;
    const auto kernel = width > kKeptWidth ? kernel_of(element, kNo, kYes)
                        : aligned          ? kernel_of(element, kYes, kNo)
                                           : kernel_of(element, kNo, kNo);
    launch(what, where, kernel, args, static_cast<int>(row_threads));
  });
}

void start_norm(const char* what, Stream& stream, const NormRows& rows) {
  const bool aligned = rows.width % 4 == 0 && holds_fours(rows.x, rows.row_stride) &&
                       holds_fours(rows.weight, rows.weight_stride) &&
                       holds_fours(rows.bias, rows.weight_stride) &&
                       holds_fours(rows.out_type, rows.out);
  start_rows(what, stream, rows.rows, aligned, rows, [](auto element, auto fours, auto wide) {
    return norm_kernel<decltype(element), fours(), wide()>;
  });
}

}  // namespace

void GpuBackend::do_norm(const NormArgs& args) {
  start_norm("norm", stream(),
             {.x = args.x,
              .row_stride = args.width,
              .weight = args.weight,
              .bias = args.bias,
              .centered = args.centered,
              .epsilon = args.epsilon,
              .rows = args.rows,
              .width = args.width,
              .out_type = args.out_type,
              .out = args.out,
              .seen = args.seen});
}

void GpuBackend::do_norm_heads(const NormHeadsArgs& args) {
  start_norm("norm_heads", stream(),
             {.x = args.x.data,
              .heads = args.x.heads,
              .row_stride = args.x.row_stride,
              .weight = args.weight,
              .weight_stride = args.weight_per_head ? args.x.head_dim : 0,
              .bias = args.bias,
              .centered = args.centered,
              .epsilon = args.epsilon,
              .rows = args.x.tokens * args.x.heads,
              .width = args.x.head_dim,
              .out = args.x.data});
}

void GpuBackend::do_residual_norm(const ResidualNormArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x) && holds_fours(args.hidden) &&
                       holds_fours(args.output_weight) && holds_fours(args.next_weight) &&
                       holds_fours(args.next_bias) && holds_fours(args.out_type, args.out);
  start_rows("residual_norm", stream(), args.rows, aligned, args,
             [](auto element, auto fours, auto wide) {
               return residual_norm_kernel<decltype(element), fours(), wide()>;
             });
}

void GpuBackend::do_gated_norm(const GatedNormArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x.data, args.x.row_stride) &&
                       holds_fours(args.gate.data, args.gate.row_stride) &&
                       holds_fours(args.weight) && holds_fours(args.out_type, args.out);
  start_rows("gated_norm", stream(), args.rows * args.groups, aligned, args,
             [](auto element, auto fours, auto wide) {
               return gated_norm_kernel<decltype(element), fours(), wide()>;
             });
}

}  // namespace kvcal::gpu
