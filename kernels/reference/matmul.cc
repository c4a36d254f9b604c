#include "backend/pack_shape.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

namespace kvcal {

namespace {

/// value rounded to the compute type.
float rounded(ComputeType type, float value) {
  std::byte stored[sizeof(float)] = {};
  reference::store_float(type, stored, 0, value);
  return reference::load_float(type, stored, 0);
}

double dot(const float* x, const float* w, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(w[i]);
  return sum;
}

}  // namespace

std::unique_ptr<PackedMatrix> ReferenceBackend::pack(std::span<const TensorView> parts,
                                                     ComputeType type) {
  const PackShape shape = checked_pack_shape(parts);
  auto packed = std::make_unique<ReferenceMatrix>();
  packed->out_features = shape.out_features;
  packed->in_features = shape.in_features;
  packed->type = type;
  for (const TensorView& part : parts)
    for (int64_t i = 0; i < part.shape[0] * part.shape[1]; ++i)
      packed->values.push_back(
          rounded(type, reference::load_float(part.dtype, part.bytes.data(), i)));
  packed->bytes = packed->values.size() * sizeof(float);
  return packed;
}

void ReferenceBackend::do_matmul(const MatmulArgs& args) {
  const auto* weight = dynamic_cast<const ReferenceMatrix*>(&args.weight);
  KVCAL_CHECK(weight != nullptr);
  const int64_t in = weight->in_features, out_features = weight->out_features;
  const int64_t stride = args.out_row_stride();
  std::vector<float> row(static_cast<size_t>(in));
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t i = 0; i < in; ++i)
      row[static_cast<size_t>(i)] = reference::load_float(weight->type, args.x, r * in + i);
    for (int64_t n = 0; n < out_features; ++n) {
      double sum = dot(row.data(), weight->values.data() + n * in, in);
      if (args.bias) sum += static_cast<double>(args.bias[n]);
      float& out = args.out[r * stride + n];
      out = static_cast<float>(args.accumulate ? static_cast<double>(out) + sum : sum);
    }
  }
}

}  // namespace kvcal
