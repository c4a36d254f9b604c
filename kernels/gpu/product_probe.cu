#include "kernels/gpu/product_probe.h"

#include "kernels/gpu/device.h"

namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = 512;
constexpr size_t kMostBytes = size_t{4} << 30, kPiece = 256;
/// Of the free memory, most is left to others: the next layer is packed meanwhile.
constexpr size_t kFreeShare = 8;
/// The first row of x that the shorter product has too, a part of its rows: no multiple of a tile.
constexpr int64_t kShift = 37;

__device__ inline uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

enum class Elements { kFloat32, kBFloat16, kFloat16, kE4m3Fn };

/// Numbers of either sign between 2^-6 and 4, whose exponents vary, so that nearly every sum is
/// rounded and its last bits tell the order of its terms.
__global__ void fill_kernel(void* out, Elements type, int64_t count, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint64_t word = mixed(seed + static_cast<uint64_t>(i));
    const auto sign = static_cast<uint32_t>(word & 1), mantissa = static_cast<uint32_t>(word >> 8);
    const auto exponent = static_cast<uint32_t>(word >> 4 & 7);
    if (type == Elements::kFloat32)
      static_cast<uint32_t*>(out)[i] = sign << 31 | (121 + exponent) << 23 | (mantissa & 0x7fffffu);
    else if (type == Elements::kBFloat16)
      static_cast<uint16_t*>(out)[i] =
          static_cast<uint16_t>(sign << 15 | (121 + exponent) << 7 | (mantissa & 0x7fu));
    else if (type == Elements::kFloat16)
      static_cast<uint16_t*>(out)[i] =
          static_cast<uint16_t>(sign << 15 | (9 + exponent) << 10 | (mantissa & 0x3ffu));
    else
      static_cast<uint8_t*>(out)[i] =
          static_cast<uint8_t>(sign << 7 | (1 + exponent) << 3 | (mantissa & 7u));
  }
}

/// Adds up words of places and bits, which gives the same digest in any order. Word: the bits of an
/// element of out.
template <class Word>
__global__ void digest_kernel(const Word* out, int64_t rows, int64_t features, int64_t stride,
                              unsigned long long* digest) {
  uint64_t sum = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (int64_t n = threadIdx.x; n < features; n += blockDim.x)
      sum += mixed(static_cast<uint64_t>(row * features + n) << 32 ^ out[row * stride + n]);
  atomicAdd(digest, static_cast<unsigned long long>(sum));
}

Launch spread(Stream& stream, int64_t count) {
  return {.stream = stream,
          .blocks = smaller(kMostBlocks, ceil_div(count, int64_t{kThreads})),
          .threads = kThreads};
}

Elements elements_of(const MatmulProblem& problem) {
  if (problem.is_fp8) return Elements::kE4m3Fn;
  switch (problem.type) {
    case ComputeType::kFloat32:
      return Elements::kFloat32;
    case ComputeType::kBFloat16:
      return Elements::kBFloat16;
    case ComputeType::kFloat16:
      return Elements::kFloat16;
  }
  return Elements::kFloat32;
}

size_t padded(int64_t count, size_t bytes) {
  return (static_cast<size_t>(count) * bytes + kPiece - 1) / kPiece * kPiece;
}
size_t x_bytes(const MatmulProblem& shape, int64_t rows) {
  return padded(2 * rows * shape.in, shape.element_bytes());
}
size_t weight_bytes(const MatmulProblem& shape) {
  return padded(shape.out_features * shape.in, shape.element_bytes());
}
size_t out_bytes(const MatmulProblem& shape, int64_t rows) {
  return padded(2 * rows * shape.out_stride, bytes_of(shape.out_type));
}

}  // namespace

std::unique_ptr<ProductProbe> ProductProbe::make(AlgorithmLibrary& library, Stream& stream,
                                                 const MatmulProblem& shape) {
  const int64_t rows = library.rows();
  const size_t bytes = x_bytes(shape, rows) + weight_bytes(shape) + out_bytes(shape, rows) + kPiece;
  if (bytes > kMostBytes || bytes > memory_state().free / kFreeShare) return nullptr;
  auto* memory = static_cast<std::byte*>(allocate_device(bytes));
  if (!memory) return nullptr;
  return std::unique_ptr<ProductProbe>(new ProductProbe(library, stream, shape, memory));
}

ProductProbe::ProductProbe(AlgorithmLibrary& library, Stream& stream, const MatmulProblem& shape,
                           std::byte* memory)
    : library_(library), stream_(stream), shape_(shape), memory_(memory) {
  const int64_t rows = library.rows();
  x_ = memory;
  weight_ = x_ + x_bytes(shape, rows);
  out_ = weight_ + weight_bytes(shape);
  digest_ = out_ + out_bytes(shape, rows);
  shape_.accumulate = false;  // the sums alone
  shape_.scales = {};
  shape_.weight = weight_;
  shape_.out = out_;
  shared_rows_ = rows - kShift;
  const auto fill = [&](std::byte* data, int64_t count, uint64_t seed) {
    launch("filling a probe", spread(stream, count), fill_kernel, static_cast<void*>(data),
           elements_of(shape), count, seed);
  };
  fill(x_, 2 * rows * shape.in, 1);
  fill(weight_, shape.out_features * shape.in, uint64_t{1} << 48);
}

ProductProbe::~ProductProbe() {
  try {
    stream_.synchronize();
  } catch (...) {  // the device failed, which is told by whoever uses it next
  }
  release_device(memory_);
}

bool ProductProbe::multiply(const Algorithm& algorithm, int64_t first, int64_t rows) {
  MatmulProblem problem = shape_;
  problem.x = x_ + static_cast<size_t>(first * shape_.in) * shape_.element_bytes();
  problem.rows = rows;
  if (!library_.takes_rows(algorithm, problem)) return false;
  try {
    library_.multiply(stream_, problem, algorithm);
  } catch (const Error&) {
    forget_last_error();
    return false;
  }
  return true;
}

bool ProductProbe::run(const Algorithm& algorithm) {
  const bool runs = multiply(algorithm, kShift, library_.rows());
  stream_.synchronize();
  return runs;
}

std::optional<uint64_t> ProductProbe::sums(const Algorithm& algorithm) {
  // What an earlier product left would pass for this one's.
  stream_.fill_zero(out_, out_bytes(shape_, library_.rows()));
  if (!multiply(algorithm, kShift, library_.rows())) return std::nullopt;
  return digest(0);
}

std::optional<uint64_t> ProductProbe::sums_elsewhere(const Algorithm& algorithm) {
  stream_.fill_zero(out_, out_bytes(shape_, library_.rows()));
  if (!multiply(algorithm, 0, 2 * library_.rows()) && !multiply(algorithm, 0, library_.rows()))
    return std::nullopt;
  return digest(kShift);
}

uint64_t ProductProbe::digest(int64_t first) {
  stream_.fill_zero(digest_, sizeof(uint64_t));
  const auto add = [&](auto word) {
    using Word = decltype(word);
    launch("digesting sums",
           {.stream = stream_, .blocks = smaller(kMostBlocks, shared_rows_), .threads = kThreads},
           digest_kernel<Word>, reinterpret_cast<const Word*>(out_) + first * shape_.out_stride,
           shared_rows_, shape_.out_features, shape_.out_stride,
           reinterpret_cast<unsigned long long*>(digest_));
  };
  if (shape_.out_type == ComputeType::kFloat32)
    add(uint32_t{});
  else
    add(uint16_t{});
  uint64_t found = 0;
  stream_.copy(&found, digest_, sizeof(found));
  stream_.synchronize();
  return found;
}

}  // namespace kvcal::gpu
