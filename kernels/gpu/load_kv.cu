// Dequantizes elements of a cache, and converts numbers to other types.
#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256;

struct LoadArgs {
  LoadKvArgs args;
  int64_t count = 0;
};

template <class From, class To, int kVector>
__global__ void __launch_bounds__(kThreads) load_kv_kernel(LoadArgs load) {
  const LoadKvArgs& args = load.args;
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (i >= load.count) return;
  float scale = 1.0f;
  if constexpr (sizeof(From) == 1) scale = args.scales[i / args.head_dim % args.heads];
  const auto from =
      *reinterpret_cast<const Pack<From, kVector>*>(static_cast<const From*>(args.x) + i);
  Pack<To, kVector> to;
  for (int n = 0; n < kVector; ++n)
    to.values[n] = element_of<To>(kv_to_float(from.values[n], scale));
  *reinterpret_cast<Pack<To, kVector>*>(static_cast<To*>(args.out) + i) = to;
}

template <class From, class To>
void launch_load(const LoadArgs& load, Stream& stream) {
  const bool by_four = load.args.head_dim % 4 == 0 && is_aligned(load.args.x, 4 * sizeof(From)) &&
                       is_aligned(load.args.out, 4 * sizeof(To));
  const int64_t threads = by_four ? load.count / 4 : load.count;
  const Launch where{.stream = stream, .blocks = ceil_div(threads, kThreads), .threads = kThreads};
  if (by_four)
    launch("load_kv", where, load_kv_kernel<From, To, 4>, load);
  else
    launch("load_kv", where, load_kv_kernel<From, To, 1>, load);
}

}  // namespace

void GpuBackend::do_load_kv(const LoadKvArgs& args) {
  const LoadArgs load{args, args.rows * args.heads * args.head_dim};
  with_kv_type(args.dtype, [&](auto from) {
    with_type(args.out_type,
              [&](auto to) { launch_load<decltype(from), decltype(to)>(load, stream()); });
  });
}

}  // namespace kvcal::gpu
