#include <cstring>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

namespace kvcal {

void ReferenceBackend::do_copy_heads(const CopyHeadsArgs& args) {
  for (int64_t t = 0; t < args.out.tokens; ++t)
    for (int64_t h = 0; h < args.out.heads; ++h) {
      const int64_t from = args.x.heads == 1 ? 0 : h;
      const float* x = args.x.data + t * args.x.row_stride + from * args.x.head_dim;
      float* out = args.out.data + t * args.out.row_stride + h * args.out.head_dim;
      for (int64_t d = 0; d < args.width; ++d) out[d] = x[d];
    }
}

void ReferenceBackend::do_route(const RouteArgs& args) {
  choose_experts(args, 0, args.rows);
  sort_by_expert(args);
}

void ReferenceBackend::do_gather_rows(const GatherRowsArgs& args) {
  const size_t bytes = static_cast<size_t>(args.width) * bytes_of(args.type);
  for (int64_t i = 0; i < args.count; ++i)
    std::memcpy(static_cast<std::byte*>(args.out) + static_cast<size_t>(i) * bytes,
                static_cast<const std::byte*>(args.x) + static_cast<size_t>(args.rows[i]) * bytes,
                bytes);
}

void ReferenceBackend::do_combine_rows(const CombineRowsArgs& args) {
  for (int64_t i = 0; i < args.rows * args.per_row; ++i) {
    const int64_t at = (args.places ? args.places[i] : i) - args.first;
    if (at < 0 || at >= args.count) continue;
    const double weight = args.weights ? args.weights[at] : 1.0;
    for (int64_t d = 0; d < args.width; ++d) {
      float& out = args.out[i / args.per_row * args.width + d];
      out = static_cast<float>(out + weight * args.x[at * args.width + d]);
    }
  }
}

}  // namespace kvcal
