#include "backend/backend.h"

#include <cstring>

#include "backend/pack_shape.h"
#include "core/error.h"

namespace kvcal {

std::string_view name_of(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat32:
      return "float32";
    case ComputeType::kBFloat16:
      return "bfloat16";
    case ComputeType::kFloat16:
      return "float16";
  }
  return "";
}

void Backend::fetch(const std::byte* pinned, std::span<std::byte> data) {
  copy_in({pinned, data.size()}, data.data());
}

void Backend::write_back(std::span<const std::byte> data, std::byte* pinned) {
  copy_out(data.data(), {pinned, data.size()});
}

std::unique_ptr<PackedMatrix> Backend::pack_decoded(std::span<const DecodedRows> parts,
                                                    ComputeType type) {
  const PackShape shape = checked_pack_shape(parts);
  std::vector<float> rows(static_cast<size_t>(shape.out_features * shape.in_features));
  decode_rows(parts, 0, shape.out_features, rows.data());
  const TensorView all{.name = "decoded rows",
                       .dtype = DType::kF32,
                       .shape = {shape.out_features, shape.in_features},
                       .bytes = std::as_bytes(std::span(rows))};
  return pack(std::span(&all, 1), type);
}

std::unique_ptr<PackGroup> Backend::make_pack_group(std::span<Backend* const> backends) {
  return std::make_unique<PackGroup>(backends);
}

std::vector<std::unique_ptr<PackedMatrix>> PackGroup::pack(const PackArgs& args) {
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  for (Backend* backend : backends_)
    packed.push_back(!args.scales.empty()   ? backend->pack_fp8(args.parts, args.scales)
                     : args.decoded.empty() ? backend->pack(args.parts, args.type)
                                            : backend->pack_decoded(args.decoded, args.type));
  return packed;
}

uint64_t Backend::decoded_bytes(int64_t rows, int64_t width) const {
  return static_cast<uint64_t>(rows * width) * sizeof(float);
}

std::unique_ptr<Recording> Backend::record(const std::function<void()>&) {
  fail(description(), " records no operations");
}

void Backend::do_residual_norm(const ResidualNormArgs& args) {
  const float* x = args.x;
  if (args.output_weight) {
    norm({.x = x,
          .weight = args.output_weight,
          .centered = args.centered,
          .epsilon = args.epsilon,
          .rows = args.rows,
          .width = args.width,
          .out = args.scratch});
    x = args.scratch;
  }
  add({.x = x, .multiplier = args.multiplier, .count = args.rows * args.width, .out = args.hidden});
  if (args.next_weight)
    norm({.x = args.hidden,
          .weight = args.next_weight,
          .bias = args.next_bias,
          .centered = args.centered,
          .epsilon = args.epsilon,
          .rows = args.rows,
          .width = args.width,
          .out_type = args.out_type,
          .out = args.out,
          .seen = args.seen});
}

void Backend::do_enter_cache(const EnterCacheArgs& args) {
  if (args.rope.x.data) rope(args.rope);
  int64_t first_row = 0;
  if (args.first_row)
    copy_out(reinterpret_cast<const std::byte*>(args.first_row),
             std::as_writable_bytes(std::span(&first_row, 1)));
  for (const CacheSide* side : {&args.k, &args.v}) {
    if (side->ranges) observe_kv({side->x, args.segments, side->ranges, side->histogram});
    if (!side->out) continue;
    const int64_t row_bytes = side->x.heads * side->x.head_dim * bytes_per_element(side->dtype);
    store_kv({side->x, side->dtype, side->scales,
              static_cast<std::byte*>(side->out) + first_row * row_bytes, side->saturated});
  }
}

std::vector<MatmulArgs> products_of(const MatmulGroupsArgs& args) {
  std::vector<MatmulArgs> products;
  int64_t row = 0;
  for (const RowGroup& group : args.groups) {
    if (group.rows > 0)
      products.push_back(
          {.x = static_cast<const std::byte*>(args.x) +
                static_cast<size_t>(row * group.weight.in_features) * bytes_of(args.type),
           .weight = group.weight,
           .bias = group.bias,
           .rows = group.rows,
           .out = args.out + row * group.weight.out_features,
           .is_decoding = args.is_decoding});
    row += group.rows;
  }
  return products;
}

void Backend::do_matmul_groups(const MatmulGroupsArgs& args) {
  for (const MatmulArgs& product : products_of(args)) matmul(product);
}

std::vector<ActivationArgs> activations_of(const MatmulActivateArgs& args) {
  std::vector<ActivationArgs> activations;
  const int64_t x_width = (args.gated ? 2 : 1) * args.width;
  int64_t row = 0;
  for (const RowGroup& group : args.groups) {
    if (activations.empty() || activations.back().seen.amax != group.seen.amax)
      activations.push_back({.x = args.scratch + row * x_width,
                             .gated = args.gated,
                             .activation = args.activation,
                             .width = args.width,
                             .out_type = args.out_type,
                             .out = static_cast<std::byte*>(args.out) +
                                    static_cast<size_t>(row * args.width) * bytes_of(args.out_type),
                             .seen = group.seen});
    activations.back().rows += group.rows;
    row += group.rows;
  }
  return activations;
}

void Backend::do_matmul_activate(const MatmulActivateArgs& args) {
  matmul_groups(args.products());
  for (const ActivationArgs& activation : activations_of(args)) activate(activation);
}

}  // namespace kvcal
