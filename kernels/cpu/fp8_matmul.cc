// FP8 codes are exact in bfloat16 and float32, so matmul's GEMM multiplies them in these types.
#include <atomic>

#include "backend/pack_shape.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/with_type.h"
#include "quant/scale.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8_matmul.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

template <fp8::Format kFormat, class T>
uint64_t quantize_as(const QuantizeRowsArgs& args, int64_t begin, int64_t end) {
  uint64_t saturated = 0;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    if (!args.scales)
      args.row_scales[row] = scale_from(Amax{magnitudes_of(x, args.width).amax}, kFormat).value;
    const float scale =
        args.scales ? args.scales[args.scale_per_row ? row : 0] : args.row_scales[row];
    saturated += quantize_row<kFormat>(x, args.width, scale, args.out + row * args.width);
  }
  return saturated;
}

/// Quantizes rows [begin, end); returns how many values saturated.
uint64_t quantize_some_rows(const QuantizeRowsArgs& args, int64_t begin, int64_t end) {
  return with_format(args.format, [&](auto format) {
    return with_type(
        args.type, [&](auto in) { return quantize_as<format(), decltype(in)>(args, begin, end); });
  });
}

/// Decodes codes [begin, end) to type.
void decode_codes(const uint8_t* codes, int64_t begin, int64_t end, ComputeType type, void* out) {
  constexpr fp8::Format kFormat = fp8::Format::kE4m3Fn;
  if (type == ComputeType::kFloat32)
    return read_fp8_row<kFormat>(codes + begin, end - begin, 1.0f,
                                 static_cast<float*>(out) + begin);
  read_fp8_row<kFormat>(codes + begin, end - begin, 1.0f, static_cast<BF16*>(out) + begin);
}

/// Scales the sums that plain gave to the results of args. scales: one, or one an output feature.
void scale_rows(const Fp8MatmulArgs& args, std::span<const float> scales, const MatmulArgs& plain,
                int64_t begin, int64_t end) {
  const bool scale_each = scales.size() > 1;
  for (int64_t row = begin; row < end; ++row) {
    const float* sums = plain.out + row * plain.out_stride;
    float* out = args.out + row * args.out_row_stride();
    const float row_scale = args.x_scales[args.scale_per_row ? row : 0];
    for_vectors(args.weight.out_features, [&](auto at) HWY_ATTR {
      const VF scale = scale_each ? at.load(scales.data()) : set(scales[0]);
      VF v = hn::Mul(hn::Mul(at.load(sums), set(row_scale)), scale);
      if (args.bias) v = hn::Add(v, at.load(args.bias));
      if (args.accumulate) v = hn::Add(v, at.load(out));
      at.store(v, out);
    });
  }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(quantize_some_rows);
HWY_EXPORT(decode_codes);
HWY_EXPORT(scale_rows);

namespace {

/// Limit of sums and decoded inputs in buffers.
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr int64_t kChunkStep = 512;  ///< rows: whole blocks of any Gemm

class CpuFp8Matrix : public PackedMatrix {
 public:
  std::unique_ptr<PackedMatrix> values;  ///< the codes as numbers of type
  ComputeType type = ComputeType::kFloat32;
  std::vector<float> scales;  ///< one, or [out_features]
};

int64_t chunk_rows(const CpuFp8Matrix& weight) {
  const int64_t widest = std::max({int64_t{1}, weight.in_features, weight.out_features});
  return std::max(kChunkStep, kChunkBytes / 4 / widest / kChunkStep * kChunkStep);
}

}  // namespace

void CpuBackend::do_quantize_rows(const QuantizeRowsArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    const uint64_t saturated = HWY_DYNAMIC_DISPATCH(quantize_some_rows)(args, begin, end);
    if (saturated > 0 && args.saturated)
      std::atomic_ref(*args.saturated).fetch_add(saturated, std::memory_order_relaxed);
  });
}

std::unique_ptr<PackedMatrix> CpuBackend::pack_fp8(std::span<const TensorView> parts,
                                                   std::span<const float> scales) {
  Fp8PackShape packed = checked_fp8_pack(parts, scales);
  auto matrix = std::make_unique<CpuFp8Matrix>();
  matrix->type = preferred_compute_type();
  matrix->values = pack_checked(parts, packed.shape, matrix->type);
  matrix->out_features = packed.shape.out_features;
  matrix->in_features = packed.shape.in_features;
  matrix->scales = std::move(packed.scales);
  matrix->bytes = matrix->values->bytes + matrix->scales.size() * sizeof(float);
  return matrix;
}

void CpuBackend::do_matmul_fp8(const Fp8MatmulArgs& args) {
  const auto* weight = dynamic_cast<const CpuFp8Matrix*>(&args.weight);
  KVCAL_CHECK(weight != nullptr);
  const int64_t in = weight->in_features, width = weight->out_features;
  const int64_t stride = args.out_row_stride(), chunk = chunk_rows(*weight);
  if (width == 0) return;
  for (int64_t first = 0; first < args.rows; first += chunk) {
    Fp8MatmulArgs part = args;
    const int64_t rows = part.rows = std::min(chunk, args.rows - first);
    part.x += first * in;
    part.x_scales += args.scale_per_row ? first : 0;
    part.out += first * stride;
    auto* x = fp8_inputs_.get<std::byte>(rows * in * static_cast<int64_t>(bytes_of(weight->type)));
    for_row_blocks(rows * in, 1, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(decode_codes)(part.x, begin, end, weight->type, x);
    });
    // Without accumulation, sums become results in place.
    const MatmulArgs plain{.x = x,
                           .weight = *weight->values,
                           .rows = rows,
                           .out = args.accumulate ? fp8_sums_.get<float>(rows * width) : part.out,
                           .out_stride = args.accumulate ? width : stride};
    do_matmul(plain);
    for_row_blocks(rows, width, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(scale_rows)(part, weight->scales, plain, begin, end);
    });
  }
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
