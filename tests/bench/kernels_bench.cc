// Rates of the cpu backend's kernels, each beside the machine's own limit measured in the same run.
// Rates are by processor time of all threads, since machines are shared: compare ratios.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/backends.h"

namespace kvcal {
namespace {

Backend& backend(int64_t threads) {
  static std::map<int64_t, std::unique_ptr<Backend>> made;
  auto& entry = made[threads];
  if (!entry) entry = kBackends.at("cpu")({.num_threads = static_cast<int>(threads)});
  return *entry;
}

std::vector<float> values(int64_t count) {
  std::vector<float> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return result;
}

void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void matmul(benchmark::State& state, ComputeType type) {
  Backend& cpu = backend(state.range(3));
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const auto w = values(out * in);
  const std::vector<TensorView> views{
      {"w", DType::kF32, Shape{out, in}, std::as_bytes(std::span(w))}};
  const auto weight = cpu.pack(views, type);
  const Buffer x = cpu.allocate(static_cast<size_t>(rows * in) * bytes_of(type));
  const Buffer result = cpu.allocate(static_cast<size_t>(rows * out) * sizeof(float));
  cpu.fill_zero(x.data(), x.size());
  for (auto _ : state)
    cpu.matmul({.x = x.data(), .weight = *weight, .rows = rows, .out = result.as<float>()});
  set_rate(state, "GF/s", 2.0 * static_cast<double>(rows * in * out));
  set_rate(state, "weight_GB/s", static_cast<double>(weight->bytes));
}
void float32(benchmark::State& state) {
  matmul(state, ComputeType::kFloat32);
}
void bfloat16(benchmark::State& state) {
  matmul(state, ComputeType::kBFloat16);
}

// Rows, inputs, outputs: a large one as the machine's rate, SmolLM2-135M's linears over 64 × 512
// tokens, its decoding, and an 8B model's gate and up.
void gemm_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2})
    for (const auto& [rows, in, out] : {std::tuple<int64_t, int64_t, int64_t>{2048, 4096, 4096},
                                        {8192, 576, 960},
                                        {8192, 576, 576},
                                        {8192, 576, 192},
                                        {8192, 576, 3072},
                                        {8192, 1536, 576},
                                        {1, 576, 3072},
                                        {1, 576, 49152},
                                        {4, 1536, 576},
                                        {1, 4096, 14336}})
      bench->Args({rows, in, out, threads});
  bench->ArgNames({"rows", "in", "out", "threads"})->MeasureProcessCPUTime();
}
BENCHMARK(float32)->Apply(gemm_shapes)->Name("matmul/float32");
BENCHMARK(bfloat16)->Apply(gemm_shapes)->Name("matmul/bfloat16");

void pack(benchmark::State& state, DType stored, ComputeType type) {
  Backend& cpu = backend(state.range(0));
  constexpr int64_t kOut = 4096, kIn = 4096;
  const std::vector<std::byte> bytes(static_cast<size_t>(kOut * kIn * bits_of_dtype(stored) / 8));
  const std::vector<TensorView> views{{"w", stored, Shape{kOut, kIn}, bytes}};
  for (auto _ : state) benchmark::DoNotOptimize(cpu.pack(views, type));
  set_rate(state, "Gelem/s", static_cast<double>(kOut * kIn));
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

/// Useful FLOP of causal attention: 4 · head_dim for each pair of query and visible key.
void attention(benchmark::State& state, KvDType dtype, Extras extras = {}) {
  const int64_t length = state.range(0), head_dim = state.range(1), heads = state.range(2);
  const int64_t kv_heads = state.range(3), history = state.range(4);
  Backend& cpu = backend(state.range(5));
  const int64_t kv = length + history;
  const std::vector<Segment> segments{
      {.q_begin = 0, .q_count = length, .kv_begin = 0, .kv_count = kv}};
  const auto q = values(length * heads * head_dim);
  const std::vector<std::byte> cache(
      static_cast<size_t>(kv * kv_heads * head_dim * bytes_per_element(dtype)));
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
                   .out = out.data()});
  const double pairs = static_cast<double>(length) * static_cast<double>(history) +
                       static_cast<double>(length) * static_cast<double>(length + 1) / 2;
  set_rate(state, "GF/s", 4.0 * pairs * static_cast<double>(heads * head_dim));
}
void attention_shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2}) {
    bench->Args({512, 64, 9, 3, 0, threads});
    bench->Args({2048, 64, 9, 3, 0, threads});
    bench->Args({2048, 128, 32, 8, 0, threads});
    bench->Args({1, 64, 9, 3, 2047, threads});
  }
  bench->ArgNames({"length", "head_dim", "heads", "kv_heads", "history", "threads"})
      ->MeasureProcessCPUTime();
}
BENCHMARK_CAPTURE(attention, float32, KvDType::kFloat32)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, bfloat16, KvDType::kBFloat16)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, fp8_e4m3, KvDType::kFp8E4m3)->Apply(attention_shapes);

void one_attention(benchmark::internal::Benchmark* bench) {
  bench->Args({2048, 64, 9, 3, 0, 1})->MeasureProcessCPUTime();
}
BENCHMARK_CAPTURE(attention, softcap, KvDType::kFloat32, Extras{.softcap = 50.0f})
    ->Apply(one_attention);
BENCHMARK_CAPTURE(attention, sinks, KvDType::kFloat32, Extras{.sinks = true})->Apply(one_attention);

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
  set_rate(state, "GF/s", 1.0 * kLength * (kLength + 1) * kHeads * (kHeadDim + kLatent));
}
BENCHMARK(latent_attention)->MeasureProcessCPUTime();

constexpr int64_t kRows = 8192, kWidth = 576;

void memory_copy(benchmark::State& state) {
  const auto from = values(state.range(0));  // beside the operations below, then beyond all caches
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  set_rate(state, "GB/s", 8.0 * static_cast<double>(from.size()));
}
BENCHMARK(memory_copy)->Arg(kRows* kWidth)->Arg(kRows * 3072);

void norm(benchmark::State& state, bool centered) {
  Backend& cpu = backend(state.range(0));
  const auto x = values(kRows * kWidth), weight = values(kWidth);
  std::vector<float> out(x.size());
  for (auto _ : state)
    cpu.norm({.x = x.data(),
              .weight = weight.data(),
              .centered = centered,
              .epsilon = 1e-5f,
              .rows = kRows,
              .width = kWidth,
              .out_type = ComputeType::kBFloat16,
              .out = out.data()});
  set_rate(state, "GB/s", 6.0 * kRows * kWidth);
}
BENCHMARK_CAPTURE(norm, rms, false)->Arg(1)->Arg(2)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(norm, centered, true)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

void rope(benchmark::State& state) {
  Backend& cpu = backend(state.range(0));
  constexpr int64_t kHeads = 9, kDim = 64;
  auto x = values(kRows * kWidth);
  const std::vector<float> table(kRows * kDim / 2, 0.7f);
  std::vector<int32_t> positions(kRows);
  for (int32_t i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = i % 512;
  for (auto _ : state)
    cpu.rope({.x = {x.data(), kRows, kHeads, kDim, kWidth},
              .positions = positions.data(),
              .cos = table.data(),
              .sin = table.data(),
              .rotary_dim = kDim});
  set_rate(state, "GB/s", 8.0 * kRows * kWidth);
}
BENCHMARK(rope)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

void activate(benchmark::State& state, Activation activation, float limit = 0.0f) {
  Backend& cpu = backend(state.range(0));
  constexpr int64_t kInner = 1536;
  const auto x = values(kRows * 2 * kInner);
  std::vector<uint16_t> out(kRows * kInner);
  for (auto _ : state)
    cpu.activate({.x = x.data(),
                  .activation = activation,
                  .limit = limit,
                  .rows = kRows,
                  .width = kInner,
                  .out_type = ComputeType::kBFloat16,
                  .out = out.data()});
  set_rate(state, "GB/s", 10.0 * kRows * kInner);
}
BENCHMARK_CAPTURE(activate, silu, Activation::kSilu)->Arg(1)->Arg(2)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(activate, gelu_tanh, Activation::kGeluTanh)->Arg(1)->MeasureProcessCPUTime();

BENCHMARK_CAPTURE(activate, gelu, Activation::kGelu)->Arg(1)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(activate, relu, Activation::kRelu)->Arg(1)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(activate, limited, Activation::kQuickGelu, 7.0f)->Arg(1)->MeasureProcessCPUTime();

void norm_heads(benchmark::State& state, bool centered) {
  Backend& cpu = backend(1);
  auto x = values(kRows * kWidth);
  const std::vector<float> weight(64, 1.0f);  // others, again and again, end in subnormals
  for (auto _ : state)
    cpu.norm_heads({.x = {x.data(), kRows, 9, 64, kWidth},
                    .weight = weight.data(),
                    .centered = centered,
                    .epsilon = 1e-5f});
  set_rate(state, "GB/s", 8.0 * kRows * kWidth);
}
BENCHMARK_CAPTURE(norm_heads, rms, false)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(norm_heads, centered, true)->MeasureProcessCPUTime();

void add(benchmark::State& state) {
  Backend& cpu = backend(1);
  const auto x = values(kRows * kWidth);
  auto out = x;
  for (auto _ : state)
    cpu.add({.x = x.data(), .multiplier = 1e-6f, .count = kRows * kWidth, .out = out.data()});
  set_rate(state, "GB/s", 12.0 * kRows * kWidth);
}
BENCHMARK(add)->MeasureProcessCPUTime();

std::vector<int32_t> half_the_rows() {
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < kRows; i += 2) rows.push_back(i);
  return rows;
}

void gather_rows(benchmark::State& state) {
  Backend& cpu = backend(1);
  const auto x = values(kRows * kWidth);
  const auto rows = half_the_rows();
  std::vector<float> out(rows.size() * kWidth);
  for (auto _ : state)
    cpu.gather_rows({.x = x.data(),
                     .rows = rows.data(),
                     .count = static_cast<int64_t>(rows.size()),
                     .width = kWidth,
                     .out = out.data()});
  set_rate(state, "GB/s", 8.0 * static_cast<double>(out.size()));
}
BENCHMARK(gather_rows)->MeasureProcessCPUTime();

void scatter_add(benchmark::State& state) {
  Backend& cpu = backend(1);
  const auto rows = half_the_rows();
  const auto x = values(static_cast<int64_t>(rows.size()) * kWidth);
  const std::vector<float> weights(rows.size(), 1e-6f);
  auto out = values(kRows * kWidth);
  for (auto _ : state)
    cpu.scatter_add({.x = x.data(),
                     .rows = rows.data(),
                     .weights = weights.data(),
                     .count = static_cast<int64_t>(rows.size()),
                     .width = kWidth,
                     .out = out.data()});
  set_rate(state, "GB/s", 12.0 * static_cast<double>(x.size()));
}
BENCHMARK(scatter_add)->MeasureProcessCPUTime();

void copy_heads(benchmark::State& state) {
  Backend& cpu = backend(1);
  auto x = values(kRows * kWidth);
  std::vector<float> out(kRows * 9 * 96);
  for (auto _ : state)
    cpu.copy_heads({.x = {x.data(), kRows, 9, 64, kWidth},
                    .out = {out.data(), kRows, 9, 96, 9 * 96},
                    .width = 64});
  set_rate(state, "GB/s", 8.0 * kRows * kWidth);
}
BENCHMARK(copy_heads)->MeasureProcessCPUTime();

void observe_amax(benchmark::State& state, ComputeType type) {
  Backend& cpu = backend(1);
  const std::vector<std::byte> x(kRows * kWidth * bytes_of(type));
  float amax = 0.0f;
  uint64_t nonfinite = 0;
  for (auto _ : state)
    cpu.observe_amax({.x = x.data(),
                      .type = type,
                      .count = kRows * kWidth,
                      .amax = &amax,
                      .nonfinite = &nonfinite});
  set_rate(state, "GB/s", static_cast<double>(x.size()));
}
BENCHMARK_CAPTURE(observe_amax, float32, ComputeType::kFloat32)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(observe_amax, bfloat16, ComputeType::kBFloat16)->MeasureProcessCPUTime();

constexpr int64_t kKvHeads = 3, kKvDim = 64;

void load_kv(benchmark::State& state) {
  Backend& cpu = backend(1);
  const std::vector<uint8_t> x(kRows * kWidth);
  const std::vector<float> scales(9, 0.01f);
  std::vector<uint16_t> out(x.size());
  for (auto _ : state)
    cpu.load_kv({.x = x.data(),
                 .dtype = KvDType::kFp8E4m3,
                 .scales = scales.data(),
                 .rows = kRows,
                 .heads = 9,
                 .head_dim = 64,
                 .out_type = ComputeType::kBFloat16,
                 .out = out.data()});
  set_rate(state, "GB/s", 3.0 * static_cast<double>(x.size()));
}
BENCHMARK(load_kv)->MeasureProcessCPUTime();

void store_kv(benchmark::State& state) {
  Backend& cpu = backend(state.range(0));
  const auto x = values(kRows * kKvHeads * kKvDim);
  const std::vector<float> scales(kKvHeads, 0.01f);
  std::vector<uint8_t> out(x.size());
  std::vector<uint64_t> saturated(kKvHeads);
  for (auto _ : state)
    cpu.store_kv({.x = {const_cast<float*>(x.data()), kRows, kKvHeads, kKvDim, kKvHeads * kKvDim},
                  .dtype = KvDType::kFp8E4m3,
                  .scales = scales.data(),
                  .out = out.data(),
                  .saturated = saturated.data()});
  set_rate(state, "GB/s", 5.0 * static_cast<double>(x.size()));
}
BENCHMARK(store_kv)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

void observe_kv(benchmark::State& state) {
  Backend& cpu = backend(state.range(0));
  auto x = values(kRows * kKvHeads * kKvDim);
  std::vector<Segment> segments;
  for (int64_t i = 0; i < kRows; i += 512) segments.push_back({.q_begin = i, .q_count = 512});
  std::vector<ObservedRange> ranges(segments.size() * kKvHeads);
  std::vector<uint64_t> histogram(kKvHeads * 384);
  for (auto _ : state)
    cpu.observe_kv({.x = {x.data(), kRows, kKvHeads, kKvDim, kKvHeads * kKvDim},
                    .segments = segments,
                    .ranges = ranges.data(),
                    .histogram = histogram.data()});
  set_rate(state, "GB/s", 4.0 * static_cast<double>(x.size()));
}
BENCHMARK(observe_kv)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

}  // namespace
}  // namespace kvcal

BENCHMARK_MAIN();
