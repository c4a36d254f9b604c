#include <algorithm>
#include <cmath>

#include "backend/pack_shape.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"
#include "quant/scale.h"

namespace kvcal {
namespace {

/// value rounded to the compute type.
float rounded(ComputeType type, float value) {
  return with_type(type, [&]<class T>(T) { return to_float(element_of<T>(value)); });
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

namespace {

constexpr fp8::Format kFormat = fp8::Format::kE4m3Fn;

class ReferenceFp8Matrix : public PackedMatrix {
 public:
  std::vector<uint8_t> codes;  ///< [out_features, in_features]
  Fp8PackShape packed;
};

float scale_of_row(const QuantizeRowsArgs& args, int64_t row) {
  if (args.scales) return args.scales[args.scale_per_row ? row : 0];
  Amax amax;
  for (int64_t i = row * args.width; i < (row + 1) * args.width; ++i) {
    const float x = reference::load_float(args.type, args.x, i);
    if (std::isfinite(x)) amax.value = std::max(amax.value, std::fabs(x));
  }
  return args.row_scales[row] = scale_from(amax, args.format).value;
}

double dot(const uint8_t* x, const uint8_t* w, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i)
    sum += static_cast<double>(fp8::decode(x[i], kFormat)) * fp8::decode(w[i], kFormat);
  return sum;
}

}  // namespace

void ReferenceBackend::do_quantize_rows(const QuantizeRowsArgs& args) {
  const float largest = fp8::max_value(args.format);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float scale = scale_of_row(args, row);
    for (int64_t i = row * args.width; i < (row + 1) * args.width; ++i) {
      const float x = reference::load_float(args.type, args.x, i);
      args.out[i] = fp8::encode(x / scale, args.format);
      if (args.saturated && std::isfinite(x) && std::fabs(x / scale) > largest) ++*args.saturated;
    }
  }
}

std::unique_ptr<PackedMatrix> ReferenceBackend::pack_fp8(std::span<const TensorView> parts,
                                                         std::span<const float> scales) {
  auto matrix = std::make_unique<ReferenceFp8Matrix>();
  matrix->packed = checked_fp8_pack(parts, scales);
  matrix->out_features = matrix->packed.shape.out_features;
  matrix->in_features = matrix->packed.shape.in_features;
  for (const TensorView& part : parts)
    for (const std::byte code : part.bytes) matrix->codes.push_back(static_cast<uint8_t>(code));
  matrix->bytes = matrix->codes.size() + matrix->packed.scales.size() * sizeof(float);
  return matrix;
}

void ReferenceBackend::do_matmul_fp8(const Fp8MatmulArgs& args) {
  const auto* weight = dynamic_cast<const ReferenceFp8Matrix*>(&args.weight);
  KVCAL_CHECK(weight != nullptr);
  const int64_t in = weight->in_features, stride = args.out_row_stride();
  const auto& [shape, scales] = weight->packed;
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t n = 0; n < shape.out_features; ++n) {
      const double x_scale = args.x_scales[args.scale_per_row ? r : 0];
      const double scale = scales[scales.size() > 1 ? static_cast<size_t>(n) : 0];
      const double bias = args.bias ? args.bias[n] : 0.0f;
      const double product =
          dot(args.x + r * in, weight->codes.data() + n * in, in) * x_scale * scale + bias;
      float& out = args.out[r * stride + n];
      out = static_cast<float>(args.accumulate ? out + product : product);
    }
}

}  // namespace kvcal
