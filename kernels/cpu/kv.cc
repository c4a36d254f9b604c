#include <algorithm>
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

/// Part of the rows and heads for one task.
struct LoadedPart {
  int64_t first_row, end_row, first_head, end_head;
};

template <class Out>
void load_kv_as(const LoadKvArgs& args, const LoadedPart& part) {
  const int64_t row = args.heads * args.head_dim;
  for (int64_t h = part.first_head; h < part.end_head; ++h) {
    const int64_t first = part.first_row * row + h * args.head_dim;
    read_kv({.dtype = args.dtype,
             .first = static_cast<const std::byte*>(args.x) + first * bytes_per_element(args.dtype),
             .row_stride = row,
             .rows = part.end_row - part.first_row,
             .head_dim = args.head_dim,
             .scale = is_fp8(args.dtype) ? args.scales[h] : 1.0f},
            static_cast<Out*>(args.out) + first, row);
  }
}

void load_kv_part(const LoadKvArgs& args, int64_t begin, int64_t end) {
  // Divided as in load_kv.
  const bool by_heads = args.heads > args.rows;
  const LoadedPart part{by_heads ? 0 : begin, by_heads ? args.rows : end, by_heads ? begin : 0,
                        by_heads ? end : args.heads};
  if (args.out_type == ComputeType::kFloat32) return load_kv_as<float>(args, part);
  if (args.out_type == ComputeType::kFloat16) return load_kv_as<F16>(args, part);
  load_kv_as<BF16>(args, part);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(store_kv_rows);
HWY_EXPORT(load_kv_part);

void CpuBackend::do_store_kv(const StoreKvArgs& args) {
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(store_kv_rows)(args, begin, end);
  });
}

void CpuBackend::do_simulate_cache(const SimulateCacheArgs& args) {
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < args.x.heads; ++h)
        round_trip(args.format, args.x.data + t * args.x.row_stride + h * args.x.head_dim,
                   args.x.head_dim, args.scales ? args.scales[h] : 1.0f);
  });
}

void CpuBackend::do_load_kv(const LoadKvArgs& args) {
  // A cache has many rows of few heads; a product's input is one row of many heads, because each
  // row or group has its own scale.
  const int64_t parts = std::max(args.rows, args.heads), other = std::min(args.rows, args.heads);
  for_row_blocks(parts, other * args.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(load_kv_part)(args, begin, end);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
