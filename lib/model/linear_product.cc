#include "model/linear_product.h"

namespace kvcal {

void multiply(Backend& backend, const ProductArgs& args) {
  backend.matmul({.x = args.x,
                  .weight = *args.linear.matrix,
                  .bias = args.linear.bias.get(),
                  .accumulate = args.accumulate,
                  .rows = args.rows,
                  .out = args.out,
                  .is_decoding = args.is_decoding});
}

void multiply_activated(Backend& backend, const ActivatedProductArgs& args) {
  backend.matmul_activate({.x = args.x,
                           .weight = *args.mlp.in.matrix,
                           .bias = args.mlp.in.bias.get(),
                           .gated = args.mlp.gated,
                           .activation = args.activation,
                           .limit = args.limit,
                           .rows = args.rows,
                           .width = args.mlp.width,
                           .scratch = args.scratch,
                           .out_type = args.out_type,
                           .out = args.out,
                           .seen = args.seen,
                           .is_decoding = args.is_decoding});
}

}  // namespace kvcal
