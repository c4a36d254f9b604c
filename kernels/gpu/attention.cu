// Attention of a few queries that shows its softmax weights. A block does one query of one head:
// few of them run in a pass over a layer, so plain loops are enough.

#include "kernels/gpu/attention.h"

#include <algorithm>
#include <utility>

#include "kernels/gpu/chips.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

AttentionGrid attention_grid(const AttentionArgs& args, int rows) {
  const int group = static_cast<int>(args.heads / args.kv_heads);
  AttentionGrid grid{.rows = rows, .packed_heads = 1, .first_segment = 0, .query_blocks = 0};
  for (int packed = std::min(group, 16); packed > 1; --packed)
    if (group % packed == 0) {
      grid.packed_heads = packed;
      break;
    }
  int64_t queries = 0;
  for (const Segment& segment : args.segments) queries = std::max(queries, segment.q_count);
  grid.query_blocks = ceil_div(queries, rows / grid.packed_heads);
  return grid;
}

void GpuBackend::do_attention(const AttentionArgs& asked) {
  if (asked.segments.empty()) return;
  DeviceAttention args = asked;
  args.v_head_dim = asked.value_dim();
  if (!args.current_segments) args.current_segments = on_device(asked.segments);
  const auto turn = [&] {
    if (args.rope.x.data) do_rope(std::exchange(args.rope, {}));
  };
  const auto attend_in_float32 = [&] {
    note_attention(AttentionUnits::kFloat32, "");
    turn();  // this kernel reads a query once a tile of keys
    attend_simt(stream(), args);
  };
  if (args.selection.words || args.weight_scale > 0.0f) return attend_in_float32();
  if (const int64_t floats = decoding_scratch(args); args.is_decoding && floats > 0)
    return attend_decoding(
        stream(), args,
        reinterpret_cast<float*>(lasting_scratch(static_cast<size_t>(floats) * sizeof(float))));
  if (args.slopes || args.relative.states) return attend_in_float32();
  if (args.rope.x.data && !turns_in_pairs(args)) turn();
  if (attends_with_warpgroups_ && attend_with_warpgroups(stream(), args, properties_))
    return note_attention(AttentionUnits::kWarpgroups, "");
  std::string slow;
  const auto attend =
      has_wave_matrix(properties_.architecture) ? attend_with_waves : attend_with_warps;
  const bool in_matrix_units = attend(stream(), args, properties_, slow);
  note_attention(in_matrix_units ? AttentionUnits::kMatrix : AttentionUnits::kFloat32, slow);
  if (in_matrix_units) return;
  turn();
  attend_simt(stream(), args);
}

namespace {

constexpr int kThreads = 128;

/// The query of one head, by a block.
class WeighKeys {
 public:
  __device__ WeighKeys(const AttentionWeightsArgs& args, int64_t query, KeySpan seen)
      : args_(args),
        head_(blockIdx.x),
        kv_head_(head_ / (args.heads / args.kv_heads)),
        row_(query * args.heads + head_),
        keys_(seen.end - seen.begin),
        k_(args.k + (seen.begin * args.kv_heads + kv_head_) * args.head_dim),
        v_(args.v + (seen.begin * args.kv_heads + kv_head_) * args.v_head_dim),
        logs_(args.log_weights + row_ * args.weights_stride) {}

  __device__ void run() {
    const float sink = args_.sinks ? args_.sinks[head_] : -kInfinity;
    float largest = sink;
    for (int64_t key = threadIdx.x; key < keys_; key += kThreads) {
      logs_[key] = score(key);
      largest = larger(largest, logs_[key]);
    }
    largest = block_max(largest);
    float total = threadIdx.x == 0 ? expf(sink - largest) : 0.0f;
    for (int64_t key = threadIdx.x; key < keys_; key += kThreads)
      total += expf(logs_[key] - largest);
    const float log_total = largest + logf(block_sum(total));
    for (int64_t key = threadIdx.x; key < keys_; key += kThreads) logs_[key] -= log_total;
    if (args_.sinks && threadIdx.x == 0) logs_[keys_] = sink - log_total;
    __syncthreads();
    for (int64_t d = threadIdx.x; d < args_.v_head_dim; d += kThreads) {
      float sum = 0.0f;
      for (int64_t key = 0; key < keys_; ++key)
        sum = fmaf(expf(logs_[key]), v_[key * args_.kv_heads * args_.v_head_dim + d], sum);
      args_.out[row_ * args_.v_head_dim + d] = sum;
    }
  }

 private:
  __device__ float score(int64_t key) const {
    const float* q = args_.q + row_ * args_.head_dim;
    const float* k = k_ + key * args_.kv_heads * args_.head_dim;
    float sum = 0.0f;
    for (int64_t d = 0; d < args_.head_dim; ++d) sum = fmaf(q[d], k[d], sum);
    sum *= args_.softmax_scale;
    if (args_.softcap > 0.0f) sum = args_.softcap * tanhf(sum / args_.softcap);
    if (args_.relative.states) sum += args_.relative.at(row_, keys_ - 1 - key);
    if (!args_.slopes) return sum;
    return fmaf(args_.slopes[head_], static_cast<float>(key - (keys_ - 1)), sum);
  }

  const AttentionWeightsArgs& args_;
  const int64_t head_, kv_head_, row_, keys_;
  const float *k_, *v_;  ///< of the first key seen
  float* logs_;          ///< [keys_], then the sink's
};

__global__ __launch_bounds__(kThreads) void attention_weights_kernel(AttentionWeightsArgs args,
                                                                     int64_t query, KeySpan seen) {
  WeighKeys(args, query, seen).run();
}

}  // namespace

void GpuBackend::do_attention_weights(const AttentionWeightsArgs& args) {
  for (int64_t query = 0; query < std::ssize(args.seen); ++query)
    launch("attention_weights", {.stream = stream(), .blocks = args.heads, .threads = kThreads},
           attention_weights_kernel, args, query, args.seen[static_cast<size_t>(query)]);
}

}  // namespace kvcal::gpu
