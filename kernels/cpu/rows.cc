#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Elements [begin, end): all lanes compute alike, so a part may end anywhere.
void add_part(const AddArgs& args, int64_t begin, int64_t end) {
  add_row(args.x + begin, args.multiplier, end - begin, args.out + begin);
}

void combine_rows(const CombineRowsArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin * args.per_row; i < end * args.per_row; ++i) {
    const int64_t at = (args.places ? args.places[i] : i) - args.first;
    if (at < 0 || at >= args.count) continue;
    add_row(args.x + at * args.width, args.weights ? args.weights[at] : 1.0f, args.width,
            args.out + i / args.per_row * args.width);
  }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(add_part);
HWY_EXPORT(combine_rows);

void CpuBackend::do_add(const AddArgs& args) {
  for_row_blocks(args.count, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_part)(args, begin, end);
  });
}

void CpuBackend::do_combine_rows(const CombineRowsArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(combine_rows)(args, begin, end);
  });
}

void CpuBackend::do_route(const RouteArgs& args) {
  for_row_blocks(args.rows, args.rule.experts,
                 [&](int64_t begin, int64_t end) { choose_experts(args, begin, end); });
  sort_by_expert(args);
}

void CpuBackend::do_gather_rows(const GatherRowsArgs& args) {
  const size_t bytes = static_cast<size_t>(args.width) * bytes_of(args.type);
  const auto* x = static_cast<const std::byte*>(args.x);
  auto* out = static_cast<std::byte*>(args.out);
  for_row_blocks(args.count, args.width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(out + static_cast<size_t>(i) * bytes,
                  x + static_cast<size_t>(args.rows[i]) * bytes, bytes);
  });
}

void CpuBackend::do_copy_heads(const CopyHeadsArgs& args) {
  const size_t bytes = static_cast<size_t>(args.width) * sizeof(float);
  const int64_t step = args.x.heads == 1 ? 0 : args.x.head_dim;
  for_row_blocks(args.x.tokens, args.out.heads * args.width, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < args.out.heads; ++h)
        std::memcpy(args.out.data + t * args.out.row_stride + h * args.out.head_dim,
                    args.x.data + t * args.x.row_stride + h * step, bytes);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
