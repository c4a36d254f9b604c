#include "backend/expert_choice.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

// Routing of tokens to experts. A thread chooses for a token and counts; then a block an expert
// finds its tokens in their order.
namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256, kChoosing = 64;
constexpr int kWarps = kThreads / kWarp;

__global__ void __launch_bounds__(kChoosing) choose_experts_kernel(RouteArgs args) {
  const int64_t row = int64_t{blockIdx.x} * kChoosing + threadIdx.x;
  if (row >= args.rows) return;
  const int64_t experts = args.rule.experts, each = args.rule.per_token;
  if (!ExpertChoice(args, row, args.scratch + row, args.rows).choose()) {
    atomicMax(args.counts + experts, args.unusable(row));
    return;
  }
  for (int64_t i = 0; i < each; ++i) atomicAdd(args.counts + args.chosen[row * each + i], 1);
}

/// Sum of the lanes' values up to this one.
__device__ inline int sum_up_to_lane(int value) {
  for (int step = 1; step < kWarp; step *= 2) {
    const int before = shuffle(value, lane() < step ? lane() : lane() - step);
    if (lane() >= step) value += before;
  }
  return value;
}

struct WarpCounts {
  int values[kWarps];
};

/// Slot of the row's choice that is the expert; -1: none.
__device__ inline int64_t slot_of(const RouteArgs& args, int64_t row, int32_t expert) {
  const int64_t each = args.rule.per_token, begin = row * each;
  if (row >= args.rows || args.chosen[begin] == RouteArgs::kUnusable) return -1;
  for (int64_t slot = begin; slot < begin + each; ++slot)
    if (args.chosen[slot] == expert) return slot;
  return -1;
}

/// How many of the row's experts come before this one.
__device__ inline int64_t rank_of(const RouteArgs& args, int64_t row, int32_t expert) {
  const int64_t each = args.rule.per_token;
  int64_t rank = 0;
  for (int64_t slot = row * each; slot < (row + 1) * each; ++slot)
    rank += args.chosen[slot] < expert ? 1 : 0;
  return rank;
}

__global__ void __launch_bounds__(kThreads) sort_by_expert_kernel(RouteArgs args) {
  KVCAL_SHARED(WarpCounts, found);
  const auto expert = static_cast<int32_t>(blockIdx.x);
  unsigned before = 0;
  for (int32_t i = lane(); i < expert; i += kWarp) before += static_cast<unsigned>(args.counts[i]);
  int64_t next = warp_count(before);
  if (args.counts[expert] == 0) return;
  for (int64_t first = 0; first < args.rows; first += kThreads) {
    const int64_t row = first + threadIdx.x, slot = slot_of(args, row, expert);
    const int up_to_mine = sum_up_to_lane(slot >= 0 ? 1 : 0);
    if (lane() == kWarp - 1) found.values[warp()] = up_to_mine;
    __syncthreads();
    int64_t place = next + up_to_mine - 1;
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp()) place += found.values[i];
      next += found.values[i];
    }
    __syncthreads();
    if (slot < 0) continue;
    args.tokens[place] = static_cast<int32_t>(row);
    args.weights[place] = args.chosen_weights[slot];
    args.places[row * args.rule.per_token + rank_of(args, row, expert)] =
        static_cast<int32_t>(place);
  }
}

}  // namespace

void GpuBackend::do_route(const RouteArgs& args) {
  const size_t bytes = static_cast<size_t>(args.rule.experts + 1) * sizeof(int32_t);
  stream().fill_zero(args.counts, bytes);
  if (args.rows == 0) return;
  launch("route",
         {.stream = stream(), .blocks = ceil_div(args.rows, kChoosing), .threads = kChoosing},
         choose_experts_kernel, args);
  launch("route", {.stream = stream(), .blocks = args.rule.experts, .threads = kThreads},
         sort_by_expert_kernel, args);
}

}  // namespace kvcal::gpu
