// A state is a matrix of independent lines: the dimensions of a head in ssm_scan, the columns of a
// value head in delta_scan. A group of 1 to 32 lanes processes a line, and each lane takes four of
// its numbers in turn. Each keeps kPart of them in registers from the first row of the segment to
// the last.

#include <algorithm>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

constexpr int kPart = 16;
constexpr int kThreads = 128;

using Part = Pack<float, kPart>;

/// Position of this thread.
struct Group {
  int lanes = 0;     ///< of the group; a power of two
  int lane = 0;      ///< in the group
  int64_t line = 0;  ///< 0 where there is none: such a group goes along and writes nothing
  bool is_real = false;

  __device__ Group(int group_lanes, int64_t lines) : lanes(group_lanes) {
    const int thread = static_cast<int>(threadIdx.x);
    lane = thread % lanes;
    line = int64_t{blockIdx.x} * (kThreads / lanes) + thread / lanes;
    is_real = line < lines;
    if (!is_real) line = 0;
  }
  /// Index in the line of the n-th number kept here.
  __device__ int number(int n) const { return 4 * (n / 4 * lanes + lane) + n % 4; }
  __device__ float sum(float value) const {
    for (int mask = lanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
  }
  /// The value of lane `index` of the group.
  __device__ float from(float value, int index) const {
    return shuffle(value, gpu::lane() - lane + index);
  }
};

/// This lane's numbers of the count at x; zeros after the end.
template <bool kAligned>
__device__ Part load_part(const Group& group, const float* x, int64_t count) {
  Part part{};
  KVCAL_UNROLL
  for (int n = 0; n < kPart; n += 4) {
    const int i = group.number(n);
    if (i >= count) continue;
    const Four four = load_four<kAligned>(x + i, count - i);
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j) part.values[n + j] = four.values[j];
  }
  return part;
}

/// The kept numbers of a line whose numbers are stride apart. Null: zeros.
__device__ Part load_state(const Group& group, const float* state, int64_t stride, int64_t count) {
  Part part{};
  if (!state) return part;
  KVCAL_UNROLL
  for (int n = 0; n < kPart; ++n)
    if (group.number(n) < count) part.values[n] = state[group.number(n) * stride];
  return part;
}
__device__ void store_state(const Group& group, const Part& part, float* state, int64_t stride,
                            int64_t count) {
  KVCAL_UNROLL
  for (int n = 0; n < kPart; ++n)
    if (group.number(n) < count) state[group.number(n) * stride] = part.values[n];
}

template <class Args>
struct OnDevice {
  Args args;
  const Segment* segments = nullptr;
  int64_t segment_count = 0;
  int lanes = 1;                  ///< of a group
  const Four* gates = nullptr;    ///< of delta_scan
  const float* decays = nullptr;  ///< of delta_scan, by key
};

// ---- ssm_scan ----

struct SsmStep {
  float size = 0.0f, decay = 0.0f;
};
/// Step of one head at one row. In double, because an error of the decay repeats at every row.
__device__ SsmStep step_of(const SsmScanArgs& args, int64_t row, int64_t head) {
  const double x = double{args.dt.data[row * args.dt.row_stride + head]} +
                   (args.dt_bias ? args.dt_bias[head] : 0.0f);
  double dt = (x < 0.0 ? 0.0 : x) + log1p(exp(-fabs(x)));
  if (dt < args.dt_min) dt = args.dt_min;  // comparisons that leave a NaN as it is
  if (dt > args.dt_max) dt = args.dt_max;
  const double decay = args.a_per_state ? 0.0 : exp(dt * args.a[head]);
  return {static_cast<float>(dt), static_cast<float>(decay)};
}

struct SsmRow {
  float x = 0.0f;
  Part b, c;
};

template <bool kPerState, bool kAligned>
__global__ void __launch_bounds__(kThreads) ssm_kernel(OnDevice<SsmScanArgs> scan) {
  const SsmScanArgs& args = scan.args;
  const Group group(scan.lanes, args.heads * args.head_dim);
  const int64_t head = group.line / args.head_dim, count = args.state_dim;
  const int64_t shared = head / (args.heads / args.groups) * count;
  const float skip = args.d ? args.d[head] : 0.0f;
  Part rates{};
  if constexpr (kPerState) rates = load_part<false>(group, args.a + head * count, count);
  const auto load = [&](int64_t row) {
    return SsmRow{
        args.x.data[row * args.x.row_stride + group.line],
        load_part<kAligned>(group, args.b.data + row * args.b.row_stride + shared, count),
        load_part<kAligned>(group, args.c.data + row * args.c.row_stride + shared, count)};
  };
  for (int64_t s = blockIdx.y; s < scan.segment_count; s += gridDim.y) {
    const Segment segment = scan.segments[s];
    if (segment.q_count == 0) continue;
    float* kept = nullptr;
    if (args.state) kept = args.state + (s * args.heads * args.head_dim + group.line) * count;
    Part state = load_state(group, kept, 1, count);
    SsmRow next = load(segment.q_begin);
    SsmStep steps;
    for (int64_t t = 0; t < segment.q_count; ++t) {
      const int turn = static_cast<int>(t) & (group.lanes - 1);
      // Each lane computes the step of another row.
      if (turn == 0)
        steps = step_of(args, segment.q_begin + smaller(t + group.lane, segment.q_count - 1), head);
      const float size = group.from(steps.size, turn), decay = group.from(steps.decay, turn);
      const SsmRow row = next;
      // Loaded before out is written, as that could be x's rows.
      if (t + 1 < segment.q_count) next = load(segment.q_begin + t + 1);
      const float scaled = size * row.x;
      float sum = 0.0f;
      KVCAL_UNROLL
      for (int n = 0; n < kPart; ++n) {
        float& value = state.values[n];
        const float kept_part = kPerState ? expf(size * rates.values[n]) : decay;
        value = fmaf(kept_part, value, scaled * row.b.values[n]);
        sum = fmaf(value, row.c.values[n], sum);
      }
      sum = group.sum(sum);
      if (args.d) sum = fmaf(skip, row.x, sum);
      if (group.is_real && group.lane == 0)
        args.out[(segment.q_begin + t) * args.out_stride + group.line] = sum;
    }
    if (kept && group.is_real) store_state(group, state, kept, 1, count);
  }
}

// ---- delta_scan ----

/// Decay by g at `at` of a row, of a head. In double, because its error repeats at every row.
__device__ double decay_of(const DeltaScanArgs& args, int64_t row, int64_t head, int64_t at) {
  double g = args.g.data[row * args.g.row_stride + at];
  if (args.decay_rate) {
    g += args.g_bias ? args.g_bias[at] : 0.0f;
    const double rate = args.decay_rate[head];
    g = args.decay_floor < 0.0f ? args.decay_floor / (1.0 + exp(rate * g))
                                : rate * ((g < 0.0 ? 0.0 : g) + log1p(exp(-fabs(g))));
  }
  return exp(g);
}

/// Computes the multipliers of q and k, the decay and beta of every row and value head, into
/// gates[row * v_heads + head], and where they are by key the decays of
/// decays[(row * v_heads + head) * k_dim]. A warp each; threads along x go through heads and rows
/// of a segment.
__global__ void delta_gates_kernel(OnDevice<DeltaScanArgs> scan, Four* gates, float* decays) {
  const DeltaScanArgs& args = scan.args;
  const Place place = place_of(int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp(), args.v_heads);
  const int64_t head = place.piece, k_head = head / (args.v_heads / args.k_heads);
  for (int64_t s = blockIdx.y; s < scan.segment_count; s += gridDim.y) {
    const Segment segment = scan.segments[s];
    if (place.row >= segment.q_count) continue;  // the whole warp
    const int64_t row = segment.q_begin + place.row;
    const float* q = args.q.data + row * args.q.row_stride + k_head * args.k_dim;
    const float* k = args.k.data + row * args.k.row_stride + k_head * args.k_dim;
    float q_squares = 0.0f, k_squares = 0.0f;
    for (int64_t i = lane(); i < args.k_dim; i += kWarp) {
      q_squares = fmaf(q[i], q[i], q_squares);
      k_squares = fmaf(k[i], k[i], k_squares);
    }
    if (decays)
      for (int64_t i = lane(); i < args.k_dim; i += kWarp)
        decays[(row * args.v_heads + head) * args.k_dim + i] =
            static_cast<float>(decay_of(args, row, head, head * args.k_dim + i));
    const double q_sum = warp_sum(q_squares), k_sum = warp_sum(k_squares);
    if (lane() != 0) continue;
    const double decay = decays ? 1.0 : decay_of(args, row, head, head);
    double beta = args.beta.data[row * args.beta.row_stride + head];
    if (args.logistic_beta) beta = args.beta_range / (1.0 + exp(-beta));
    const double scale = 1.0 / sqrt(static_cast<double>(args.k_dim));
    const double q_scale = args.normalize ? scale / sqrt(q_sum + 1e-6) : scale;
    const double k_scale = args.normalize ? 1.0 / sqrt(k_sum + 1e-6) : 1.0;
    gates[row * args.v_heads + head] = {{static_cast<float>(q_scale), static_cast<float>(k_scale),
                                         static_cast<float>(decay), static_cast<float>(beta)}};
  }
}

struct DeltaRow {
  Four gates;
  float v = 0.0f;
  Part q, k, decays;
};

/// Runs one row through the kept numbers of a column; returns its output.
template <bool kPerKey>
__device__ float delta_step(const Group& group, const DeltaRow& row, Part& state) {
  const auto [q_scale, k_scale, decay, beta] = row.gates.values;
  Part k;
  float known = 0.0f;
  KVCAL_UNROLL
  for (int i = 0; i < kPart; ++i) {
    k.values[i] = row.k.values[i] * k_scale;
    state.values[i] *= kPerKey ? row.decays.values[i] : decay;
    known = fmaf(k.values[i], state.values[i], known);
  }
  const float change = beta * (row.v - group.sum(known));
  float sum = 0.0f;
  KVCAL_UNROLL
  for (int i = 0; i < kPart; ++i) {
    state.values[i] = fmaf(k.values[i], change, state.values[i]);
    sum = fmaf(row.q.values[i], state.values[i], sum);
  }
  return q_scale * group.sum(sum);
}

template <bool kAligned, bool kPerKey>
__global__ void __launch_bounds__(kThreads) delta_kernel(OnDevice<DeltaScanArgs> scan) {
  const DeltaScanArgs& args = scan.args;
  const Group group(scan.lanes, args.v_heads * args.v_dim);
  const int64_t head = group.line / args.v_dim, column = group.line % args.v_dim;
  const int64_t k_first = head / (args.v_heads / args.k_heads) * args.k_dim;
  const auto load = [&](int64_t row) {
    const int64_t gates = row * args.v_heads + head;
    DeltaRow loaded{
        scan.gates[gates],
        args.v.data[row * args.v.row_stride + group.line],
        load_part<kAligned>(group, args.q.data + row * args.q.row_stride + k_first, args.k_dim),
        load_part<kAligned>(group, args.k.data + row * args.k.row_stride + k_first, args.k_dim),
        {}};
    if constexpr (kPerKey)
      loaded.decays = load_part<kAligned>(group, scan.decays + gates * args.k_dim, args.k_dim);
    return loaded;
  };
  for (int64_t s = blockIdx.y; s < scan.segment_count; s += gridDim.y) {
    const Segment segment = scan.segments[s];
    if (segment.q_count == 0) continue;
    float* kept = nullptr;
    if (args.state)
      kept = args.state + (s * args.v_heads + head) * args.k_dim * args.v_dim + column;
    Part state = load_state(group, kept, args.v_dim, args.k_dim);
    DeltaRow next = load(segment.q_begin);
    for (int64_t t = 0; t < segment.q_count; ++t) {
      const DeltaRow row = next;
      // Loaded before out is written, as that could be v's rows.
      if (t + 1 < segment.q_count) next = load(segment.q_begin + t + 1);
      const float out = delta_step<kPerKey>(group, row, state);
      if (group.is_real && group.lane == 0)
        args.out[(segment.q_begin + t) * args.out_stride + group.line] = out;
    }
    if (kept && group.is_real) store_state(group, state, kept, args.v_dim, args.k_dim);
  }
}

/// Kernel arguments with the shared settings, for lines of so many numbers.
template <class Args>
OnDevice<Args> prepared(const Args& args, const Segment* segments, int64_t numbers,
                        const char* what) {
  if (numbers > int64_t{kPart} * kWarp)
    fail(what, " keeps up to ", kPart * kWarp, " numbers of a state's line, this one has ",
         numbers);
  OnDevice<Args> scan{.args = args,
                      .segments = segments,
                      .segment_count = static_cast<int64_t>(args.segments.size())};
  while (scan.lanes * int64_t{kPart} < numbers) scan.lanes *= 2;
  return scan;
}

/// Grid: as many blocks along x as the work of one segment needs, and one along y for each segment.
template <class Scan>
Launch scan_launch(Stream& stream, const Scan& scan, int64_t blocks) {
  return {.stream = stream,
          .blocks = blocks,
          .blocks_y = static_cast<unsigned>(std::min<int64_t>(scan.segment_count, 65535)),
          .threads = kThreads};
}

}  // namespace

void GpuBackend::do_ssm_scan(const SsmScanArgs& args) {
  if (args.segments.empty()) return;
  auto scan = prepared(args, on_device(args.segments), args.state_dim, "ssm_scan");
  const int64_t lines = args.heads * args.head_dim;
  scan.args.out_stride = args.out_row_stride();
  const bool aligned = args.state_dim % 4 == 0 && holds_fours(args.b.data, args.b.row_stride) &&
                       holds_fours(args.c.data, args.c.row_stride);
  const Launch where = scan_launch(stream(), scan, ceil_div(lines * scan.lanes, kThreads));
  const auto per_head = aligned ? ssm_kernel<false, true> : ssm_kernel<false, false>;
  const auto per_state = aligned ? ssm_kernel<true, true> : ssm_kernel<true, false>;
  launch("ssm_scan", where, args.a_per_state ? per_state : per_head, scan);
}

void GpuBackend::do_delta_scan(const DeltaScanArgs& args) {
  if (args.segments.empty()) return;
  auto scan = prepared(args, on_device(args.segments), args.k_dim, "delta_scan");
  const int64_t lines = args.v_heads * args.v_dim;
  scan.args.out_stride = args.out_row_stride();
  int64_t longest = 0, end = 0;
  for (const Segment& segment : args.segments) {
    longest = std::max(longest, segment.q_count);
    end = std::max(end, segment.q_begin + segment.q_count);
  }
  const auto gate_count = static_cast<size_t>(end * args.v_heads);
  const size_t decay_count = args.decay_per_key ? gate_count * static_cast<size_t>(args.k_dim) : 0;
  auto* gates = reinterpret_cast<Four*>(
      lasting_scratch(gate_count * sizeof(Four) + decay_count * sizeof(float)));
  auto* decays = args.decay_per_key ? reinterpret_cast<float*>(gates + gate_count) : nullptr;
  scan.gates = gates;
  scan.decays = decays;
  launch("delta_scan's gates",
         scan_launch(stream(), scan, ceil_div(longest * args.v_heads, kThreads / kWarp)),
         delta_gates_kernel, scan, gates, decays);
  const bool aligned = args.k_dim % 4 == 0 && holds_fours(args.q.data, args.q.row_stride) &&
                       holds_fours(args.k.data, args.k.row_stride);
  const Launch where = scan_launch(stream(), scan, ceil_div(lines * scan.lanes, kThreads));
  const auto per_head = aligned ? delta_kernel<true, false> : delta_kernel<false, false>;
  const auto per_key = aligned ? delta_kernel<true, true> : delta_kernel<false, true>;
  launch("delta_scan", where, args.decay_per_key ? per_key : per_head, scan);
}

namespace {

constexpr int64_t kRowsOfThread = 16;

struct DeviceConv {
  CausalConvArgs args;
  const Segment* segments = nullptr;
  int64_t segment_count = 0;
};

/// Start of row p of the segment; rows before the segment come from the state. Null: zeros.
__device__ const float* conv_row(const CausalConvArgs& args, const Segment& segment,
                                 const float* state, int64_t p) {
  if (p >= 0) return args.x.data + (segment.q_begin + p) * args.x.row_stride;
  return state ? state + (p + args.kernel - 1) * args.channels : nullptr;
}

/// Four channels of one row. With kKernel, the kernel's size is known and weights[j] holds the j-th
/// weight of each channel; else weights are read from memory.
template <int kKernel, bool kAligned>
__device__ Four convolved(const CausalConvArgs& args, const Segment& segment, const float* state,
                          int64_t t, int64_t c, const Four* weights) {
  const int64_t kernel = kKernel > 0 ? kKernel : args.kernel, left = args.channels - c;
  Four sum{};
  if (args.bias) sum = load_four<kAligned>(args.bias + c, left);
  for (int64_t j = 0; j < kernel; ++j) {
    const float* row = conv_row(args, segment, state, t - (kernel - 1) + j);
    Four x{};
    if (row) x = load_four<kAligned>(row + c, left);
    KVCAL_UNROLL
    for (int i = 0; i < 4; ++i) {
      float weight = 0.0f;
      if (kKernel > 0)
        weight = weights[j].values[i];
      else if (i < left)
        weight = args.weight[(c + i) * kernel + j];
      sum.values[i] = fmaf(weight, x.values[i], sum.values[i]);
    }
  }
  if (args.silu) {
    KVCAL_UNROLL
    for (int i = 0; i < 4; ++i) sum.values[i] *= logistic(sum.values[i]);
  }
  return sum;
}

/// Threads along x take channels, four each, then runs of kRowsOfThread rows.
template <int kKernel, bool kAligned>
__global__ void conv_kernel(DeviceConv conv) {
  const CausalConvArgs& args = conv.args;
  const Place place =
      place_of(int64_t{blockIdx.x} * blockDim.x + threadIdx.x, ceil_div(args.channels, 4));
  const int64_t c = 4 * place.piece, first = place.row * kRowsOfThread;
  Four weights[kKernel > 0 ? kKernel : 1] = {};
  if constexpr (kKernel > 0)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < kKernel; ++j)
        if (c + i < args.channels) weights[j].values[i] = args.weight[(c + i) * kKernel + j];
  const int64_t state_size = (args.kernel - 1) * args.channels;
  for (int64_t s = blockIdx.y; s < conv.segment_count; s += gridDim.y) {
    const Segment segment = conv.segments[s];
    const float* state = args.state ? args.state + s * state_size : nullptr;
    const int64_t end = smaller(first + kRowsOfThread, segment.q_count);
    for (int64_t t = first; t < end; ++t)
      store_four<kAligned>(args.out + (segment.q_begin + t) * args.out_stride + c,
                           convolved<kKernel, kAligned>(args, segment, state, t, c, weights),
                           args.channels - c);
  }
}

/// Copies the last rows of each segment to its state.
__global__ void conv_state_kernel(DeviceConv conv) {
  const CausalConvArgs& args = conv.args;
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, before = args.kernel - 1;
  if (c >= args.channels) return;
  for (int64_t s = blockIdx.y; s < conv.segment_count; s += gridDim.y) {
    const Segment segment = conv.segments[s];
    float* state = args.state + s * before * args.channels;
    for (int64_t i = 0; i < before; ++i)  // reads at or behind what it writes
      state[i * args.channels + c] =
          conv_row(args, segment, state, segment.q_count - before + i)[c];
  }
}

}  // namespace

void GpuBackend::do_causal_conv(const CausalConvArgs& asked) {
  if (asked.segments.empty()) return;
  DeviceConv conv{.args = asked,
                  .segments = on_device(asked.segments),
                  .segment_count = static_cast<int64_t>(asked.segments.size())};
  CausalConvArgs& args = conv.args;
  args.out_stride = args.out_row_stride();
  int64_t longest = 0;
  for (const Segment& segment : asked.segments) longest = std::max(longest, segment.q_count);
  const int64_t threads = ceil_div(args.channels, 4) * ceil_div(longest, kRowsOfThread);
  const Launch where = scan_launch(stream(), conv, ceil_div(threads, kThreads));
  const bool aligned = args.channels % 4 == 0 && holds_fours(args.x.data, args.x.row_stride) &&
                       holds_fours(args.out, args.out_stride) && holds_fours(args.bias) &&
                       holds_fours(args.state);
  const auto of_four = aligned ? conv_kernel<4, true> : conv_kernel<4, false>;
  const auto of_any = aligned ? conv_kernel<0, true> : conv_kernel<0, false>;
  launch("causal_conv", where, args.kernel == 4 ? of_four : of_any, conv);
  if (!args.state || args.kernel == 1) return;
  launch("causal_conv's state", scan_launch(stream(), conv, ceil_div(args.channels, kThreads)),
         conv_state_kernel, conv);
}

}  // namespace kvcal::gpu
