#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

template <bool kAligned>
__global__ void add_kernel(AddArgs args) {
  for_pieces(ceil_div(args.count, 4), [&](int64_t piece) {
    const int64_t i = 4 * piece, left = args.count - i;
    const Four x = load_four<kAligned>(args.x + i, left);
    Four out = load_four<kAligned>(args.out + i, left);
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j) out.values[j] = out.values[j] + args.multiplier * x.values[j];
    store_four<kAligned>(args.out + i, out, left);
  });
}

/// Calls change(number) for each number of each head, in place.
template <bool kAligned, class Change>
__device__ void change_heads(const HeadsView& x, const Change& change) {
  const int64_t width = x.heads * x.head_dim, pieces = ceil_div(width, 4);
  for_pieces(x.tokens * pieces, [&](int64_t piece) {
    const Place place = place_of(piece, pieces);
    const int64_t i = 4 * place.piece, left = width - i;
    float* at = x.data + place.row * x.row_stride + i;
    Four four = load_four<kAligned>(at, left);
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j) change(four.values[j]);
    store_four<kAligned>(at, four, left);
  });
}

template <bool kAligned>
__global__ void scale_kernel(ScaleArgs args) {
  change_heads<kAligned>(args.x, [&](float& x) { x *= args.factor; });
}

template <bool kAligned>
__global__ void clamp_kernel(ClampArgs args) {
  const float limit = args.limit;
  // The comparisons keep NaN.
  change_heads<kAligned>(args.x, [&](float& x) {
    x = x > limit ? limit : x < -limit ? -limit : x;
  });
}

/// The comparisons keep NaN.
__device__ float at_most(float x, float limit) {
  return x > limit ? limit : x;
}
__device__ float within(float x, float limit) {
  return x < -limit ? -limit : at_most(x, limit);
}

/// activation(gate) · up, cut where there is a limit.
template <Activation kActivation>
__device__ float gated(float gate, float up, const ActivationFunction& function) {
  const float limit = function.limit;
  if constexpr (kActivation == Activation::kSitu)
    if (function.up_softcap > 0.0f) up = function.up_softcap * tanhf(up / function.up_softcap);
  if (limit == 0.0f) return activated<kActivation>(gate, function) * up;
  if (function.limits_activated)
    return at_most(activated<kActivation>(gate, function), limit) * within(up, limit);
  const float shift = function.adds_one ? 1.0f : 0.0f;
  return activated<kActivation>(at_most(gate, limit), function) * (within(up, limit) + shift);
}

/// in stands for args.x.
template <Activation kActivation, class From, class T, bool kAligned>
__global__ void activate_kernel(const From* in, ActivationArgs args) {
  const int64_t pieces = ceil_div(args.width, 4);
  const ActivationFunction& function = args.activation;
  ThreadAmax seen;
  for_pieces(args.rows * pieces, [&](int64_t piece) {
    const Place place = place_of(piece, pieces);
    const int64_t i = 4 * place.piece, left = args.width - i;
    const From* x = in + place.row * (args.gated ? 2 * args.width : args.width) + i;
    Four gate = load_four<kAligned>(x, left), up = {{1.0f, 1.0f, 1.0f, 1.0f}};
    if (args.gated) up = load_four<kAligned>(x + args.width, left);
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j)
      gate.values[j] =
          gated<kActivation>(gate.values[j] * function.gate_multiplier, up.values[j], function);
    const auto written =
        store_four<kAligned>(static_cast<T*>(args.out) + place.row * args.width + i, gate, left);
    if (args.seen.amax) see_four<kAligned>(written, left, seen);
  });
  fold_seen_of_block(args.seen, seen);
}

template <class T, bool kAligned>
__global__ void multiply_gate_kernel(MultiplyGateArgs args) {
  const int64_t pieces = ceil_div(args.width, 4);
  ThreadAmax seen;
  for_pieces(args.rows * args.heads * pieces, [&](int64_t piece) {
    const Place place = place_of(piece, pieces);
    const Place head = place_of(place.row, args.heads);  // its row, and which of the row's it is
    const int64_t i = 4 * place.piece, left = args.width - i;
    const float* x = args.x.data + head.row * args.x.row_stride + head.piece * args.width;
    const float* gate =
        args.gate.data + head.row * args.gate.row_stride + head.piece * args.gate_head_stride;
    Four result = load_four<kAligned>(x + i, left), by;
    if (args.gate_per_head)
      by = {{*gate, *gate, *gate, *gate}};
    else
      by = load_four<kAligned>(gate + i, left);
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j) result.values[j] *= gate_of(args.function, by.values[j]);
    const auto written =
        store_four<kAligned>(static_cast<T*>(args.out) + place.row * args.width + i, result, left);
    if (args.seen.amax) see_four<kAligned>(written, left, seen);
  });
  fold_seen_of_block(args.seen, seen);
}

template <class T, int kCount>
__global__ void observe_amax_kernel(ObserveAmaxArgs args) {
  const T* x = static_cast<const T*>(args.x);
  ThreadAmax seen;
  for_pieces(ceil_div(args.count, kCount), [&](int64_t piece) {
    const int64_t i = kCount * piece;
    if (i + kCount <= args.count) {
      const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(x + i);
      KVCAL_UNROLL
      for (int j = 0; j < kCount; ++j) seen.see(to_float(pack.values[j]));
    } else {
      for (int64_t j = i; j < args.count; ++j) seen.see(to_float(x[j]));
    }
  });
  fold_seen_of_block({args.amax, args.nonfinite}, seen);
}

bool holds_fours(const HeadsView& x) {
  return x.heads * x.head_dim % 4 == 0 && gpu::holds_fours(x.data, x.row_stride);
}
int64_t pieces_of(const HeadsView& x) {
  return x.tokens * ceil_div(x.heads * x.head_dim, 4);
}

}  // namespace

void GpuBackend::do_add(const AddArgs& args) {
  const bool aligned = args.count % 4 == 0 && holds_fours(args.x) && holds_fours(args.out);
  launch("add", on_pieces(ceil_div(args.count, 4)), aligned ? add_kernel<true> : add_kernel<false>,
         args);
}

void GpuBackend::do_scale(const ScaleArgs& args) {
  launch("scale", on_pieces(pieces_of(args.x)),
         holds_fours(args.x) ? scale_kernel<true> : scale_kernel<false>, args);
}

void GpuBackend::do_clamp(const ClampArgs& args) {
  launch("clamp", on_pieces(pieces_of(args.x)),
         holds_fours(args.x) ? clamp_kernel<true> : clamp_kernel<false>, args);
}

template <class T, class From>
void GpuBackend::activate_rows(const From* in, const ActivationArgs& args) {
  const bool aligned =
      args.width % 4 == 0 && holds_fours(in) && holds_fours(args.out_type, args.out);
  with_activation(args.activation.kind, [&](auto activation) {
    constexpr Activation kKind = decltype(activation)::value;
    launch("activate", on_pieces(args.rows * ceil_div(args.width, 4)),
           aligned ? activate_kernel<kKind, From, T, true> : activate_kernel<kKind, From, T, false>,
           in, args);
  });
}

void GpuBackend::do_activate(const ActivationArgs& args) {
  with_type(args.out_type, [&](auto element) { activate_rows<decltype(element)>(args.x, args); });
}

void GpuBackend::do_matmul_activate(const MatmulActivateArgs& args) {
  const bool rounds = args.out_type == ComputeType::kBFloat16 && multiply_rounded(args.products());
  if (!rounds) return Backend::do_matmul_activate(args);
  const auto* rounded = reinterpret_cast<const BF16*>(args.scratch);
  for (const ActivationArgs& activation : activations_of(args))
    activate_rows<BF16>(rounded + (activation.x - args.scratch), activation);
}

void GpuBackend::do_multiply_gate(const MultiplyGateArgs& asked) {
  MultiplyGateArgs args = asked;
  args.gate_head_stride = args.gate_stride();
  const bool has_gate_fours =
      args.gate_per_head ||
      (holds_fours(args.gate.data, args.gate.row_stride) && args.gate_head_stride % 4 == 0);
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x.data, args.x.row_stride) &&
                       has_gate_fours && holds_fours(args.out_type, args.out);
  const int64_t pieces = args.rows * args.heads * ceil_div(args.width, 4);
  with_type(args.out_type, [&]<class T>(T) {
    launch("multiply_gate", on_pieces(pieces),
           aligned ? multiply_gate_kernel<T, true> : multiply_gate_kernel<T, false>, args);
  });
}

void GpuBackend::do_observe_amax(const ObserveAmaxArgs& args) {
  const bool aligned = is_aligned(args.x, 16);
  with_type(args.type, [&]<class T>(T) {
    constexpr int kCount = static_cast<int>(16 / sizeof(T));
    launch("observe_amax", on_pieces(ceil_div(args.count, aligned ? kCount : 1)),
           aligned ? observe_amax_kernel<T, kCount> : observe_amax_kernel<T, 1>, args);
  });
}

namespace {

template <bool kAligned>
__global__ void copy_heads_kernel(CopyHeadsArgs args) {
  const int64_t pieces = ceil_div(args.width, 4);
  for_pieces(args.out.tokens * args.out.heads * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    const Place head = place_of(place.row, args.out.heads);  // its token, and which head it is
    const int64_t from = args.x.heads == 1 ? 0 : head.piece;
    const int64_t i = 4 * place.piece, left = args.width - i;
    const float* x = args.x.data + head.row * args.x.row_stride + from * args.x.head_dim;
    float* out = args.out.data + head.row * args.out.row_stride + head.piece * args.out.head_dim;
    store_four<kAligned>(out + i, load_four<kAligned>(x + i, left), left);
  });
}

/// Rows of `pieces` Units each.
template <class Unit>
__global__ void gather_rows_kernel(const Unit* x, const int32_t* rows, int64_t count,
                                   int64_t pieces, Unit* out) {
  for_pieces(count * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    out[index] = x[rows[place.row] * pieces + place.piece];
  });
}

/// Reads and writes an out row once, and only where x holds one of its places.
template <bool kAligned>
__global__ void combine_rows_kernel(CombineRowsArgs args) {
  const int64_t pieces = ceil_div(args.width, 4);
  for_pieces(args.rows * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    const int64_t i = 4 * place.piece, left = args.width - i;
    float* out = args.out + place.row * args.width + i;
    Four sum{};
    bool is_loaded = false;
    for (int64_t n = place.row * args.per_row; n < (place.row + 1) * args.per_row; ++n) {
      const int64_t at = (args.places ? args.places[n] : n) - args.first;
      if (at < 0 || at >= args.count) continue;
      if (!is_loaded) sum = load_four<kAligned>(out, left);
      is_loaded = true;
      const float weight = args.weights ? args.weights[at] : 1.0f;
      const Four x = load_four<kAligned>(args.x + at * args.width + i, left);
      KVCAL_UNROLL
      for (int j = 0; j < 4; ++j) sum.values[j] = sum.values[j] + weight * x.values[j];
    }
    if (is_loaded) store_four<kAligned>(out, sum, left);
  });
}

}  // namespace

void GpuBackend::do_copy_heads(const CopyHeadsArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x.data, args.x.row_stride) &&
                       holds_fours(args.out.data, args.out.row_stride) &&
                       args.x.head_dim % 4 == 0 && args.out.head_dim % 4 == 0;
  const int64_t pieces = args.out.tokens * args.out.heads * ceil_div(args.width, 4);
  launch("copy_heads", on_pieces(pieces),
         aligned ? copy_heads_kernel<true> : copy_heads_kernel<false>, args);
}

void GpuBackend::do_gather_rows(const GatherRowsArgs& args) {
  const auto start = [&]<class Unit>(Unit) {
    const int64_t pieces =
        args.width * static_cast<int64_t>(bytes_of(args.type)) / static_cast<int64_t>(sizeof(Unit));
    launch("gather_rows", on_pieces(args.count * pieces), gather_rows_kernel<Unit>,
           static_cast<const Unit*>(args.x), args.rows, args.count, pieces,
           static_cast<Unit*>(args.out));
  };
  const auto fits = [&](size_t bytes) {
    return static_cast<size_t>(args.width) * bytes_of(args.type) % bytes == 0 &&
           is_aligned(args.x, bytes) && is_aligned(args.out, bytes);
  };
  if (fits(16)) return start(Pack<uint32_t, 4>{});
  if (fits(4)) return start(uint32_t{});
  start(uint16_t{});
}

void GpuBackend::do_combine_rows(const CombineRowsArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x) && holds_fours(args.out);
  launch("combine_rows", on_pieces(args.rows * ceil_div(args.width, 4)),
         aligned ? combine_rows_kernel<true> : combine_rows_kernel<false>, args);
}

namespace {

template <bool kAligned>
__global__ void mix_streams_kernel(MixStreamsArgs args) {
  const int64_t pieces = ceil_div(args.width, 4), size = args.rows * args.width;
  for_pieces(args.streams * args.rows * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    const Place row = place_of(place.row, args.rows);  // its stream, and which row it is
    const int64_t i = 4 * place.piece, left = args.width - i, at = row.piece * args.width + i;
    const float* coefficients =
        args.coefficients + (row.piece * args.streams + row.row) * args.inputs;
    Four sum = {};
    if (args.x) sum = load_four<kAligned>(args.x + row.row * size + at, left);
    for (int64_t q = 0; q < args.inputs; ++q) {
      const Four added = load_four<kAligned>(args.added + q * size + at, left);
      KVCAL_UNROLL
      for (int j = 0; j < 4; ++j)
        sum.values[j] = fmaf(coefficients[q], added.values[j], sum.values[j]);
    }
    store_four<kAligned>(args.out + row.row * size + at, sum, left);
  });
}

__device__ inline float logistic_of(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/// Divides `count` numbers, `step` apart, by their sum plus epsilon.
__device__ inline void divide_by_sum(float* x, int64_t count, int64_t step, float epsilon) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += x[i * step];
  for (int64_t i = 0; i < count; ++i) x[i * step] /= sum + epsilon;
}

/// A thread a row, whose few weights stay in its cache. The pairs are [to, from] in rows of expand.
__global__ void connect_streams_kernel(ConnectStreamsArgs args) {
  const int64_t streams = args.streams, stride = streams + 1, width = (2 + streams) * streams;
  for_pieces(args.rows, [&](int64_t row) {
    const float* x = args.x + row * width;
    const auto product = [&](int64_t i, int64_t part) {
      return fmaf(x[i], args.scale[part], args.base[i]);
    };
    float* collapse = args.collapse + row * streams;
    float* expand = args.expand + row * streams * stride;
    for (int64_t i = 0; i < streams; ++i) {
      collapse[i] = logistic_of(product(i, 0)) + args.epsilon;
      expand[i * stride + streams] = 2.0f * logistic_of(product(streams + i, 1));
      float largest = product((2 + i) * streams, 2);
      for (int64_t to = 1; to < streams; ++to)
        largest = fmaxf(largest, product((2 + i) * streams + to, 2));
      for (int64_t to = 0; to < streams; ++to)
        expand[to * stride + i] = expf(product((2 + i) * streams + to, 2) - largest);
      divide_by_sum(expand + i, streams, stride, 0.0f);
      for (int64_t to = 0; to < streams; ++to) expand[to * stride + i] += args.epsilon;
    }
    for (int64_t i = 0; i < args.iterations; ++i) {
      for (int64_t from = 0; i > 0 && from < streams; ++from)
        divide_by_sum(expand + from, streams, stride, args.epsilon);
      for (int64_t to = 0; to < streams; ++to)
        divide_by_sum(expand + to * stride, streams, 1, args.epsilon);
    }
  });
}

/// Mean over a row of function(value), for a block that owns the row.
template <class Function>
__device__ inline float row_mean(const float* x, int64_t width, const Function& function) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += function(x[i]);
  return block_sum(sum) / static_cast<float>(width);
}

struct StreamScores {
  float values[AttendStreamsArgs::kMaxStreams];
};

/// One block per row.
__global__ void attend_streams_kernel(AttendStreamsArgs args) {
  KVCAL_SHARED(StreamScores, shared);
  float* const scores = shared.values;
  const int64_t begin = int64_t{blockIdx.x} * args.width, size = args.rows * args.width;
  const float* x = args.x + begin;
  for (int64_t s = 0; s < args.streams; ++s) {
    float squares = 0.0f, product = 0.0f;
    for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
      const float value = x[s * size + i];
      squares = fmaf(value, value, squares);
      product = fmaf(value, args.weight[i], product);
    }
    const float mean = block_sum(squares) / static_cast<float>(args.width);
    const float score = block_sum(product) / sqrtf(mean + args.epsilon);
    if (threadIdx.x == 0) scores[s] = score;
  }
  __syncthreads();
  float largest = scores[0], sum = 0.0f;
  for (int64_t s = 1; s < args.streams; ++s) largest = fmaxf(largest, scores[s]);
  for (int64_t s = 0; s < args.streams; ++s) sum += expf(scores[s] - largest);
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    float mixed = 0.0f;
    for (int64_t s = 0; s < args.streams; ++s)
      mixed = fmaf(expf(scores[s] - largest), x[s * size + i], mixed);
    args.out[begin + i] = mixed / sum;
  }
}

/// One block per row and stream.
__global__ void gate_by_keys_kernel(GateByKeysArgs args) {
  const int64_t begin = int64_t{blockIdx.x} * args.width;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    sum = fmaf(args.key[begin + i], args.stream[begin + i], sum);
  const float gate = args.gate(block_sum(sum));
  const float* value = args.value + int64_t{blockIdx.x} / args.streams * args.width;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    args.out[begin + i] = gate * value[i];
}

/// One block per row.
__global__ void match_magnitude_kernel(MatchMagnitudeArgs args) {
  float* x = args.x + int64_t{blockIdx.x} * args.width;
  const float* target = args.target + int64_t{blockIdx.x} * args.width;
  const auto square = [](float value) { return value * value; };
  const float wanted = row_mean(target, args.width, square);
  const float own = row_mean(x, args.width, square);
  const float factor = sqrtf(wanted) / sqrtf(own < args.floor ? args.floor : own);  // NaN stays
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) x[i] *= factor;
}

/// One block per row.
__global__ void keep_outliers_kernel(KeepOutliersArgs args) {
  float* x = args.x + int64_t{blockIdx.x} * args.row_stride;
  const float mean = row_mean(x, args.width, [](float value) { return value; });
  const float variance =
      row_mean(x, args.width, [mean](float value) { return (value - mean) * (value - mean); });
  const float border = mean + sqrtf(variance) * args.deviations;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float above = x[i] - border;
    x[i] = above < 0.0f ? 0.0f : above;  // NaN stays
  }
}

}  // namespace

void GpuBackend::do_mix_streams(const MixStreamsArgs& args) {
  const bool aligned = args.width % 4 == 0 && (!args.x || holds_fours(args.x)) &&
                       holds_fours(args.added) && holds_fours(args.out);
  const int64_t pieces = args.streams * args.rows * ceil_div(args.width, 4);
  launch("mix_streams", on_pieces(pieces),
         aligned ? mix_streams_kernel<true> : mix_streams_kernel<false>, args);
}

void GpuBackend::do_connect_streams(const ConnectStreamsArgs& args) {
  launch("connect_streams", on_pieces(args.rows), connect_streams_kernel, args);
}

void GpuBackend::do_attend_streams(const AttendStreamsArgs& args) {
  if (args.rows == 0) return;
  launch("attend_streams", row_launch(stream(), args.rows, args.width), attend_streams_kernel,
         args);
}

void GpuBackend::do_gate_by_keys(const GateByKeysArgs& args) {
  const int64_t blocks = args.rows * args.streams;
  if (blocks == 0) return;
  launch("gate_by_keys", row_launch(stream(), blocks, args.width), gate_by_keys_kernel, args);
}

void GpuBackend::do_match_magnitude(const MatchMagnitudeArgs& args) {
  if (args.rows == 0) return;
  launch("match_magnitude", row_launch(stream(), args.rows, args.width), match_magnitude_kernel,
         args);
}

void GpuBackend::do_keep_outliers(const KeepOutliersArgs& args) {
  if (args.rows == 0) return;
  launch("keep_outliers", row_launch(stream(), args.rows, args.width), keep_outliers_kernel, args);
}

}  // namespace kvcal::gpu
