// FP8 scales and codes of one weight against copying it: bytes per second are those of the source.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "quant/half.h"
#include "quant/weight_scales.h"

using namespace kvcal;

namespace {

constexpr int64_t kRows = 4096, kColumns = 4096;

/// A normal distribution with trained weights' deviation.
const Tensor& weight_of(DType dtype) {
  static const auto make = [](DType type) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    Tensor weight{"weight", type, {kRows, kColumns}, {}};
    weight.bytes.resize(byte_count(weight.shape, type));
    for (size_t i = 0; i < element_count(weight.shape); ++i) {
      const float value = normal(random);
      if (type == DType::kF32) std::memcpy(weight.bytes.data() + 4 * i, &value, 4);
      const uint16_t bits = type == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
      if (type != DType::kF32) std::memcpy(weight.bytes.data() + 2 * i, &bits, 2);
    }
    return weight;
  };
  static const Tensor bf16 = make(DType::kBF16), f16 = make(DType::kF16), f32 = make(DType::kF32);
  return dtype == DType::kBF16 ? bf16 : dtype == DType::kF16 ? f16 : f32;
}

QuantArgs args_of(Strategy strategy, const char* observer) {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = strategy;
  args.observer = observer;
  if (strategy == Strategy::kBlock) args.block_structure = {128, 128};
  return args;
}

void count_bytes(benchmark::State& state, const Tensor& weight) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(weight.bytes.size()));
}

void copy(benchmark::State& state) {
  const Tensor& weight = weight_of(DType::kBF16);
  std::vector<std::byte> target(weight.bytes.size());
  for (auto _ : state) {
    std::memcpy(target.data(), weight.bytes.data(), target.size());
    benchmark::ClobberMemory();
  }
  count_bytes(state, weight);
}

void scales(benchmark::State& state, DType dtype, Strategy strategy, ScaleArithmetic arithmetic,
            const char* observer) {
  const Tensor& weight = weight_of(dtype);
  const QuantArgs args = args_of(strategy, observer);
  for (auto _ : state)
    benchmark::DoNotOptimize(weight_scales(weight.view(), args, arithmetic, nullptr));
  count_bytes(state, weight);
}

void codes(benchmark::State& state, DType dtype, Strategy strategy, ScaleArithmetic arithmetic) {
  const Tensor& weight = weight_of(dtype);
  const WeightScales found =
      weight_scales(weight.view(), args_of(strategy, "memoryless_minmax"), arithmetic, nullptr);
  const WeightCoder coder(weight.view(), found.grid, found.scales, arithmetic);
  std::vector<uint8_t> target(element_count(weight.shape));
  for (auto _ : state) {
    coder.encode(0, target);
    benchmark::ClobberMemory();
  }
  count_bytes(state, weight);
}

void add_cases() {
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kChannel, Strategy::kBlock}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const bool is_model : {false, true}) {
        const auto arithmetic = is_model ? ScaleArithmetic::kModelDtype : ScaleArithmetic::kFloat32;
        const std::string tail = name_of(strategy) + "/" + std::string(name_of(dtype)) +
                                 (is_model ? "/model" : "/float32");
        for (const char* observer : {"memoryless_minmax", "mse"}) {
          const std::string name = std::string("scales/") + observer + "/" + tail;
          benchmark::RegisterBenchmark(name.c_str(), scales, dtype, strategy, arithmetic, observer)
              ->Unit(benchmark::kMillisecond);
        }
        benchmark::RegisterBenchmark(("codes/" + tail).c_str(), codes, dtype, strategy, arithmetic)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("copy/BF16", copy)->Unit(benchmark::kMillisecond);
  add_cases();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
