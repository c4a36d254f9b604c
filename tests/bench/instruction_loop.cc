#include "bench/instruction_loop.h"

#include <cstdint>
#include <vector>

#include "bench/machine_rate.h"
#include "kernels/cpu/cpu_class.h"
#include "kernels/cpu/tile_product.h"
#include "quant/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvcal::bench {
namespace {

using cpu::CpuClass;

constexpr int64_t kSteps = int64_t{1} << 22;

/// Normal numbers: zeros would multiply at another clock rate.
class Numbers {
 public:
  float next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(state_ >> 8) * 0x1p-24f + 0.5f;
  }

 private:
  uint32_t state_ = 1;
};

/// Keeps what a loop computes from being left out.
template <class Vector>
void use(const Vector& value) {
  asm volatile("" ::"m"(value) : "memory");
}

/// Enough sums to hide a multiply-add's latency on two ports.
constexpr int kSums = 12;

/// Four lanes of what the compiler is told of every processor, multiplied and then added.
using Lanes = float __attribute__((vector_size(16)));
void multiply_add_128(int64_t steps) {
  Numbers numbers;
  Lanes sums[kSums], factor, addend;
  for (Lanes& sum : sums)
    for (int lane = 0; lane < 4; ++lane) sum[lane] = numbers.next();
  for (int lane = 0; lane < 4; ++lane) factor[lane] = addend[lane] = 0.5f * numbers.next();
  for (int64_t step = 0; step < steps; ++step)
    for (Lanes& sum : sums) sum = sum * factor + addend;
  for (const Lanes& sum : sums) use(sum);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_add_256(int64_t steps) {
  Numbers numbers;
  __m256 sums[kSums];
  for (__m256& sum : sums) sum = _mm256_set1_ps(numbers.next());
  const __m256 factor = _mm256_set1_ps(0.5f * numbers.next()),
               addend = _mm256_set1_ps(0.5f * numbers.next());
  for (int64_t step = 0; step < steps; ++step)
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, addend);
  for (const __m256& sum : sums) use(sum);
}

__attribute__((target("avx512f"))) void multiply_add_512(int64_t steps) {
  Numbers numbers;
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_set1_ps(numbers.next());
  const __m512 factor = _mm512_set1_ps(0.5f * numbers.next()),
               addend = _mm512_set1_ps(0.5f * numbers.next());
  for (int64_t step = 0; step < steps; ++step)
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, addend);
  for (const __m512& sum : sums) use(sum);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void dot_512(int64_t steps) {
  Numbers numbers;
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_set1_ps(numbers.next());
  const __m512 a = _mm512_set1_ps(numbers.next()), b = _mm512_set1_ps(numbers.next());
  const __m512bh pairs_a = _mm512_cvtne2ps_pbh(a, b), pairs_b = _mm512_cvtne2ps_pbh(b, a);
  for (int64_t step = 0; step < steps; ++step)
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, pairs_a, pairs_b);
  for (const __m512& sum : sums) use(sum);
}
#endif

struct Body {
  void (*run)(int64_t steps);
  int lanes, multiplied;  ///< pairs of numbers that a lane multiplies at once
  const char* what;
};

Body body_of(CpuClass level, ComputeType type) {
#if defined(__x86_64__)
  if (level >= CpuClass::kAvx512Bf16 && type == ComputeType::kBFloat16)
    return {dot_512, 16, 2, "dot products of bfloat16"};
  if (level >= CpuClass::kAvx512) return {multiply_add_512, 16, 1, "multiply-adds of float32"};
  if (level >= CpuClass::kAvx2) return {multiply_add_256, 8, 1, "multiply-adds of float32"};
#endif
  return {multiply_add_128, 4, 1, "multiply-adds of float32"};
}

}  // namespace

/// 32 rows by panels of 32 columns, which are 1 MiB together.
struct InstructionLoop::Tiles {
  static constexpr int64_t kRows = 2 * cpu::kTileRows, kDepth = 512, kPanels = 32, kTimes = 512;
  static constexpr int64_t kPanel = kDepth / 2 * cpu::kTileColumns;  ///< pairs

  Tiles() : a(kRows * kDepth), b(kPanels * kPanel) {
    Numbers numbers;
    for (BF16& value : a) value = to_bf16(numbers.next());
    for (uint32_t& pair : b) pair = 0x00010001u * to_bf16(numbers.next()).bits;
  }
  static constexpr double flop() {
    return 2.0 * kRows * kDepth * cpu::kTileColumns * kPanels * kTimes;
  }
  void run() const {
    std::vector<float> c(kRows * cpu::kTileColumns);
    const cpu::TileSession session(cpu::TileInstructions::kAmxBf16);
    for (int64_t i = 0; i < kTimes * kPanels; ++i)
      session.multiply({.a = a.data(),
                        .a_stride = kDepth,
                        .b = b.data() + i % kPanels * kPanel,
                        .b_stride = cpu::kTileColumns,
                        .c = c.data(),
                        .c_stride = cpu::kTileColumns,
                        .rows = kRows,
                        .columns = cpu::kTileColumns,
                        .steps = kDepth});
    use(c[0]);
  }

  std::vector<BF16> a;      ///< [kRows, kDepth]
  std::vector<uint32_t> b;  ///< [kPanels, kDepth / 2, kTileColumns]
};

InstructionLoop::InstructionLoop(ComputeType type) {
  const CpuClass level = cpu::cpu_class();
  name_ = std::string(cpu::name_of(level)) + ": ";
  if (level == CpuClass::kAmx && type == ComputeType::kBFloat16) {
    tiles_ = std::make_unique<Tiles>();
    name_ += "products of tiles of bfloat16";
    return;
  }
  const Body body = body_of(level, type);
  body_ = body.run;
  flop_per_step_ = 2.0 * kSums * body.lanes * body.multiplied;
  name_ += body.what;
}

InstructionLoop::~InstructionLoop() = default;

double InstructionLoop::flop() const {
  return tiles_ ? Tiles::flop() : flop_per_step_ * static_cast<double>(kSteps);
}

void InstructionLoop::run() const {
  tiles_ ? tiles_->run() : body_(kSteps);
}

double read_rate(int threads) {
  constexpr size_t kWords = (size_t{128} << 20) / sizeof(uint64_t);  // more than caches hold
  constexpr int kPasses = 7;
  std::vector<std::vector<uint64_t>> memory(static_cast<size_t>(threads));
  on_threads(threads, [&](int thread) {  // pages lie near the thread that first writes them
    memory[static_cast<size_t>(thread)].assign(kWords, static_cast<uint64_t>(thread) + 1);
  });
  std::vector<double> rates;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double begin = wall_seconds();
    on_threads(threads, [&](int thread) {
      uint64_t sums[8] = {};
      const std::vector<uint64_t>& words = memory[static_cast<size_t>(thread)];
      for (size_t i = 0; i < kWords; i += 8)
        for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
      use(sums);
    });
    rates.push_back(static_cast<double>(threads) * kWords * sizeof(uint64_t) /
                    (wall_seconds() - begin));
  }
  return middle_of(rates);
}

}  // namespace kvcal::bench
