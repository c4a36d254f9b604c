// Products of FP8 codes: by the vendor's library where chip and library support them, else by the
// library with the codes as bfloat16, in which they are exact, else by our own kernels.
#include "kernels/gpu/gpu_matrix.h"
#include "kernels/gpu/kv_number.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256;
/// Limit of buffered sums or decoded inputs, and the step of their number of rows, a multiple of
/// the rows that libraries process together.
constexpr int64_t kApartBytes = int64_t{64} << 20, kRowStep = 2048;

constexpr int kCodes = 16;

/// Converts codes of E4M3FN to bfloat16, exactly: kCount at a time, the last ones one by one.
template <int kCount>
__global__ void decode_kernel(const fp8::E4m3Fn* codes, BF16* out, int64_t count) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  const auto decoded = [](fp8::E4m3Fn code) {
    return BF16{static_cast<uint16_t>(bits_of(number_of(code)) >> 16)};
  };
  if (first + kCount > count) {
    for (int64_t i = first; i < count; ++i) out[i] = decoded(codes[i]);
    return;
  }
  const auto loaded = *reinterpret_cast<const Pack<fp8::E4m3Fn, kCount>*>(codes + first);
  constexpr int kPiece = kCount < 8 ? kCount : 8;
  KVCAL_UNROLL
  for (int piece = 0; piece < kCount; piece += kPiece) {
    Pack<BF16, kPiece> values;
    KVCAL_UNROLL
    for (int i = 0; i < kPiece; ++i) values.values[i] = decoded(loaded.values[piece + i]);
    *reinterpret_cast<Pack<BF16, kPiece>*>(out + first + piece) = values;
  }
}

void decode(Stream& stream, const void* codes, std::byte* out, int64_t count) {
  const auto* from = static_cast<const fp8::E4m3Fn*>(codes);
  const bool by_vector = reinterpret_cast<uintptr_t>(codes) % kCodes == 0;
  launch("decoding FP8",
         {.stream = stream,
          .blocks = ceil_div(count, by_vector ? int64_t{kThreads} * kCodes : int64_t{kThreads}),
          .threads = kThreads},
         by_vector ? decode_kernel<kCodes> : decode_kernel<1>, from, reinterpret_cast<BF16*>(out),
         count);
}

/// out (+)= sums · scales + bias; sums may be out.
template <bool kAligned>
__global__ void scale_kernel(const float* sums, int64_t sums_stride, MatmulProblem problem) {
  const ProductScales scales = problem.scales;
  const int64_t fours = ceil_div(problem.out_features, int64_t{4});
  for_pieces(problem.rows * fours, [&](int64_t index) {
    const auto [row, four] = place_of(index, fours);
    const int64_t begin = four * 4, left = problem.out_features - begin;
    const auto load = [&](const float* from) { return load_four<kAligned>(from + begin, left); };
    float* out = problem.floats() + row * problem.out_stride;
    const float row_scale = scales.x[scales.per_row ? row : 0];
    Four values = load(sums + row * sums_stride), factors{}, bias{}, before{};
    if (scales.per_feature) factors = load(scales.weight);
    if (problem.bias) bias = load(problem.bias);
    if (problem.accumulate) before = load(out);
    KVCAL_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& value = values.values[i];
      value *= row_scale;
      value *= scales.per_feature ? factors.values[i] : scales.weight[0];
      if (problem.bias) value += bias.values[i];
      if (problem.accumulate) value = before.values[i] + value;
    }
    store_four<kAligned>(out + begin, values, left);
  });
}

int64_t fours_of(const MatmulProblem& problem) {
  return problem.rows * ceil_div(problem.out_features, int64_t{4});
}
void scale(const Launch& where, const float* sums, int64_t sums_stride,
           const MatmulProblem& problem) {
  const bool aligned = problem.out_features % 4 == 0 && holds_fours(sums, sums_stride) &&
                       holds_fours(problem.floats(), problem.out_stride) &&
                       holds_fours(problem.bias) && holds_fours(problem.scales.weight);
  launch("scaling sums", where, aligned ? scale_kernel<true> : scale_kernel<false>, sums,
         sums_stride, problem);
}

/// The problem without scales and bias, for a library.
MatmulProblem plain_sums(const MatmulProblem& problem, void* out, int64_t out_stride) {
  MatmulProblem sums = problem;
  sums.scales = {};
  sums.bias = nullptr;
  sums.accumulate = false;
  sums.out = out;
  sums.out_stride = out_stride;
  return sums;
}

}  // namespace

bool GpuBackend::multiply_fp8_by_vendor(const MatmulProblem& problem) {
  if (vendor_->takes(problem)) {
    vendor_->run(stream(), memory_, problem);
    return true;
  }
  // Accumulation needs sums in a buffer of their own. Decoding has no memory for that, because it
  // may be recorded.
  const bool apart = problem.accumulate;
  const int64_t stride = apart ? problem.out_features : problem.out_stride;
  MatmulProblem asked = plain_sums(problem, problem.out, stride);
  const bool decoded = !vendor_->takes(asked);
  if (decoded) {
    asked.is_fp8 = false;
    asked.type = ComputeType::kBFloat16;
  }
  if ((decoded && !vendor_->takes(asked)) || (problem.is_decoding && (decoded || apart)))
    return false;

  const int64_t row_bytes = larger(apart ? stride * 4 : 0, decoded ? problem.in * 2 : 0);
  const int64_t fitting = kApartBytes / larger<int64_t>(row_bytes, 1) / kRowStep * kRowStep;
  const int64_t chunk =
      row_bytes == 0 ? problem.rows : smaller(problem.rows, larger(fitting, kRowStep));
  const auto room = [&](bool wanted, int64_t bytes) {
    return wanted ? allocate(static_cast<size_t>(bytes)) : Buffer();
  };
  const Buffer weight = room(decoded, problem.out_features * problem.in * 2);
  const Buffer inputs = room(decoded, chunk * problem.in * 2);
  const Buffer sums = room(apart, chunk * stride * 4);
  if (decoded) decode(stream(), problem.weight, weight.data(), problem.out_features * problem.in);
  for (int64_t first = 0; first < problem.rows; first += chunk) {
    const MatmulProblem part = problem.of_rows(first, smaller(chunk, problem.rows - first));
    asked.x = decoded ? inputs.data() : part.x;
    asked.weight = decoded ? weight.data() : part.weight;
    asked.out = apart ? sums.data() : part.out;
    asked.rows = part.rows;
    if (decoded) decode(stream(), part.x, inputs.data(), part.rows * part.in);
    vendor_->run(stream(), memory_, asked);
    gpu::scale(on_pieces(fours_of(part)), asked.floats(), stride, part);
  }
  return true;
}

void GpuBackend::do_matmul_fp8(const Fp8MatmulArgs& args) {
  const auto* weight = dynamic_cast<const GpuMatrix*>(&args.weight);
  KVCAL_CHECK(weight != nullptr && weight->is_fp8);
  if (args.rows == 0 || weight->out_features == 0) return;
  await_upload(*weight);
  MatmulProblem problem = problem_of(args, *weight);
  problem.scales = {.x = args.x_scales,
                    .weight = weight->scales.as<float>(),
                    .per_row = args.scale_per_row,
                    .per_feature = weight->scale_per_feature};
  if (!vendor_ || has_few_rows(problem) || !multiply_fp8_by_vendor(problem))
    multiply_own(problem, stream());
}

}  // namespace kvcal::gpu
