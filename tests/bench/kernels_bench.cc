// Rates of the cpu backend's products, attention and packing, each beside the processor's
// limit in the same run.
#include <cmath>
#include <string>

#include "bench/instruction_loop.h"
#include "bench/kernel_bench.h"

namespace kvcal::bench {
namespace {

/// 0.75 as bfloat16 or float32, 1.875 as E4M3: zeros multiply at another clock rate.
constexpr int kSomeByte = 0x3f;

/// The processor's own limits.
void limit(benchmark::State& state, ComputeType type) {
  const auto threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    const MachineRate rate = machine_rate(type, threads);
    state.counters["GF/s_thread"] = rate.flop_per_cpu_second * 1e-9;
    state.counters["GF/s_all"] = rate.flop_per_second * 1e-9;
    state.SetLabel(rate.source);
  }
}
BENCHMARK_CAPTURE(limit, float32, ComputeType::kFloat32)->Arg(1)->Arg(2)->Iterations(1);
BENCHMARK_CAPTURE(limit, bfloat16, ComputeType::kBFloat16)->Arg(1)->Arg(2)->Iterations(1);

void reading(benchmark::State& state) {
  for (auto _ : state)
    state.counters["GB/s_all"] = read_rate(static_cast<int>(state.range(0))) * 1e-9;
}
BENCHMARK(reading)->Arg(1)->Arg(2)->Iterations(1);

std::unique_ptr<PackedMatrix> packed(Backend& cpu, int64_t out, int64_t in, ComputeType type) {
  const auto w = values(out * in);
  const std::vector<TensorView> views{
      {"w", DType::kF32, Shape{out, in}, std::as_bytes(std::span(w))}};
  return cpu.pack(views, type);
}

void matmul(benchmark::State& state, ComputeType type) {
  Backend& cpu = backend(state.range(3));
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto weight = packed(cpu, out, in, type);
  const Buffer x = cpu.allocate(static_cast<size_t>(rows * in) * bytes_of(type));
  const Buffer result = cpu.allocate(static_cast<size_t>(rows * out) * sizeof(float));
  std::memset(x.data(), kSomeByte, x.size());
  std::memset(result.data(), 0, result.size());  // pages come once in a calibration
  for (auto _ : state)
    cpu.matmul({.x = x.data(), .weight = *weight, .rows = rows, .out = result.as<float>()});
  set_flop(state, 2.0 * static_cast<double>(rows * in * out), type, state.range(3));
  set_rate(state, "weight_GB/s", static_cast<double>(weight->bytes));
}

// Rows, inputs, outputs: SmolLM2-135M's linears over 64 × 512 tokens, its decoding, and those of
// models of 1.5B, 8B and 30B-A3B, with an expert's rows of a batch.
void gemm_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2})
    for (const auto& [rows, in, out] : {std::tuple<int64_t, int64_t, int64_t>{8192, 576, 960},
                                        {8192, 576, 576},
                                        {8192, 576, 384},
                                        {8192, 576, 3072},
                                        {8192, 1536, 576},
                                        {1, 576, 3072},
                                        {1, 576, 49152},
                                        {4, 1536, 576},
                                        {1, 4096, 14336},
                                        {1024, 1536, 2048},
                                        {1024, 1536, 17920},
                                        {1024, 8960, 1536},
                                        {1024, 4096, 2048},
                                        {1024, 4096, 4096},
                                        {1024, 4096, 28672},
                                        {1024, 14336, 4096},
                                        {1024, 2048, 5120},
                                        {64, 2048, 1536},
                                        {64, 768, 2048}})
      bench->Args({rows, in, out, threads});
  bench->ArgNames({"rows", "in", "out", "threads"})->MeasureProcessCPUTime();
}
BENCHMARK_CAPTURE(matmul, float32, ComputeType::kFloat32)->Apply(gemm_shapes);
BENCHMARK_CAPTURE(matmul, bfloat16, ComputeType::kBFloat16)->Apply(gemm_shapes);

/// Gate, up and what is made of them.
void matmul_activate(benchmark::State& state, ComputeType type) {
  Backend& cpu = backend(state.range(3));
  const int64_t rows = state.range(0), in = state.range(1), width = state.range(2);
  const auto weight = packed(cpu, 2 * width, in, type);
  const Buffer x = cpu.allocate(static_cast<size_t>(rows * in) * bytes_of(type));
  std::memset(x.data(), kSomeByte, x.size());
  const Buffer scratch = cpu.allocate(static_cast<size_t>(rows * 2 * width) * sizeof(float));
  const Buffer out = cpu.allocate(static_cast<size_t>(rows * width) * bytes_of(type));
  std::memset(out.data(), 0, out.size());
  const RowGroup group{.weight = *weight, .rows = rows};
  for (auto _ : state)
    cpu.matmul_activate({.x = x.data(),
                         .type = type,
                         .groups = {&group, 1},
                         .width = width,
                         .scratch = scratch.as<float>(),
                         .out_type = type,
                         .out = out.data()});
  set_flop(state, 4.0 * static_cast<double>(rows * in * width), type, state.range(3));
}
void gate_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2}) {
    bench->Args({1024, 576, 1536, threads});
    bench->Args({1024, 4096, 14336, threads});
  }
  bench->ArgNames({"rows", "in", "width", "threads"})->MeasureProcessCPUTime();
}
BENCHMARK_CAPTURE(matmul_activate, float32, ComputeType::kFloat32)->Apply(gate_shapes);
BENCHMARK_CAPTURE(matmul_activate, bfloat16, ComputeType::kBFloat16)->Apply(gate_shapes);

void pack(benchmark::State& state, DType stored, ComputeType type) {
  Backend& cpu = backend(state.range(0));
  constexpr int64_t kOut = 4096, kIn = 4096;
  const std::vector<std::byte> bytes(static_cast<size_t>(kOut * kIn * bits_of_dtype(stored) / 8));
  const std::vector<TensorView> views{{"w", stored, Shape{kOut, kIn}, bytes}};
  for (auto _ : state) benchmark::DoNotOptimize(cpu.pack(views, type));
  set_rate(state, "Gelem/s", static_cast<double>(kOut * kIn));
  set_bytes(state, static_cast<double>(bytes.size()) +
                       static_cast<double>(kOut * kIn) * static_cast<double>(bytes_of(type)));
}
BENCHMARK_CAPTURE(pack, f16_to_float32, DType::kF16, ComputeType::kFloat32)
    ->Arg(1)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(pack, f16_to_bfloat16, DType::kF16, ComputeType::kBFloat16)
    ->Arg(1)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(pack, bf16_to_bfloat16, DType::kBF16, ComputeType::kBFloat16)
    ->Arg(1)
    ->MeasureProcessCPUTime();

/// What attention may have beyond the plain case.
struct Extras {
  float softcap = 0.0f;
  bool sinks = false;
};

/// type: what is multiplied, and what comes out.
void attention(benchmark::State& state, KvDType dtype, ComputeType type, Extras extras = {}) {
  const int64_t length = state.range(0), head_dim = state.range(1), heads = state.range(2);
  const int64_t kv_heads = state.range(3), history = state.range(4), window = state.range(5);
  Backend& cpu = backend(state.range(6));
  const int64_t kv = length + history;
  const std::vector<Segment> segments{
      {.q_begin = 0, .q_count = length, .kv_begin = 0, .kv_count = kv}};
  const auto q = values(length * heads * head_dim);
  const std::vector<std::byte> cache(
      static_cast<size_t>(kv * kv_heads * head_dim * bytes_per_element(dtype)),
      std::byte{kSomeByte});
  const std::vector<float> scales(static_cast<size_t>(kv_heads), 0.01f);
  const auto sinks = values(heads);
  std::vector<float> out(q.size());
  for (auto _ : state)
    cpu.attention({.q = q.data(),
                   .q_row_stride = heads * head_dim,
                   .k = cache.data(),
                   .v = cache.data(),
                   .kv_dtype = dtype,
                   .k_scales = scales.data(),
                   .v_scales = scales.data(),
                   .segments = segments,
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_dim = head_dim,
                   .softmax_scale = 0.125f,
                   .softcap = extras.softcap,
                   .sinks = extras.sinks ? sinks.data() : nullptr,
                   .sliding_window = window,
                   .product_type = type,
                   .out_type = type,
                   .out = out.data()});
  set_flop(state, attention_flop(history, length, window, 2 * heads * head_dim), type,
           state.range(6));
}
void attention_names(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"length", "head_dim", "heads", "kv_heads", "history", "window", "threads"})
      ->MeasureProcessCPUTime();
}
void attention_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2}) {
    for (const int64_t length : {512, 2048}) {
      bench->Args({length, 64, 9, 3, 0, 0, threads});
      bench->Args({length, 128, 32, 8, 0, 0, threads});
    }
    bench->Args({2048, 64, 9, 3, 0, 512, threads});
    bench->Args({1, 64, 9, 3, 2047, 0, threads});
  }
  attention_names(bench);
}
constexpr auto kF32 = ComputeType::kFloat32, kBf16 = ComputeType::kBFloat16;
BENCHMARK_CAPTURE(attention, float32, KvDType::kFloat32, kF32)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, fp8_float32, KvDType::kFp8E4m3, kF32)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, float32_bf16, KvDType::kFloat32, kBf16)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, bf16_bf16, KvDType::kBFloat16, kBf16)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, fp8_bf16, KvDType::kFp8E4m3, kBf16)->Apply(attention_shapes);

void one_attention(benchmark::internal::Benchmark* bench) {
  bench->Args({2048, 64, 9, 3, 0, 0, 1});
  attention_names(bench);
}
BENCHMARK_CAPTURE(attention, softcap, KvDType::kFloat32, kF32, Extras{.softcap = 50.0f})
    ->Apply(one_attention);
BENCHMARK_CAPTURE(attention, sinks, KvDType::kFloat32, kF32, Extras{.sinks = true})
    ->Apply(one_attention);

/// Latent attention: one KV head of 576 whose first 512 are the value, a head a query.
void latent_attention(benchmark::State& state) {
  constexpr int64_t kLength = 256, kHeads = 16, kLatent = 512, kHeadDim = 576;
  Backend& cpu = backend(1);
  const std::vector<Segment> segments{{.q_count = kLength, .kv_count = kLength}};
  const auto q = values(kLength * kHeads * kHeadDim), k = values(kLength * kHeadDim);
  const auto v = values(kLength * kLatent);
  std::vector<float> out(kLength * kHeads * kLatent);
  for (auto _ : state)
    cpu.attention({.q = q.data(),
                   .q_row_stride = kHeads * kHeadDim,
                   .k = k.data(),
                   .v = v.data(),
                   .segments = segments,
                   .heads = kHeads,
                   .kv_heads = 1,
                   .head_dim = kHeadDim,
                   .v_head_dim = kLatent,
                   .softmax_scale = 0.05f,
                   .out = out.data()});
  set_flop(state, attention_flop(0, kLength, 0, kHeads * (kHeadDim + kLatent)), kF32, 1);
}
BENCHMARK(latent_attention)->MeasureProcessCPUTime();

}  // namespace
}  // namespace kvcal::bench

BENCHMARK_MAIN();
