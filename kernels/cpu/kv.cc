#include <atomic>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kv_write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

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
HWY_EXPORT(store_kv_rows);
HWY_EXPORT(load_kv_rows);

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
