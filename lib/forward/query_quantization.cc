#include "forward/query_quantization.h"

#include "core/error.h"

namespace kvcal {

void quantize_query(Backend& backend, const QueryQuantizationArgs& args) {
  const HeadsView& q = args.q;
  KVCAL_CHECK(q.row_stride == q.heads * q.head_dim);
  KVCAL_CHECK(is_fp8(args.dtype));
  backend.store_kv({.x = q,
                    .dtype = args.dtype,
                    .scales = args.scales,
                    .out = args.codes,
                    .saturated = args.saturated});
  backend.load_kv({.x = args.codes,
                   .dtype = args.dtype,
                   .scales = args.scales,
                   .rows = q.tokens,
                   .heads = q.heads,
                   .head_dim = q.head_dim,
                   .out_type = ComputeType::kFloat32,
                   .out = q.data});
}

}  // namespace kvcal
