// Rates of the cpu backend's passes over rows, each beside a memcpy of as many bytes.
#include "bench/kernel_bench.h"
#include "quant/observations.h"

namespace kvcal::bench {
namespace {

constexpr int64_t kRows = 8192, kWidth = 576;

void memory_copy(benchmark::State& state) {
  const auto from = values(state.range(0));  // beside the operations below, then beyond all caches
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  set_bytes(state, 8.0 * static_cast<double>(from.size()));
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
  set_bytes(state, 6.0 * kRows * kWidth);
}
/// What stands between attention's projection and the MLP's.
void residual_norm(benchmark::State& state) {
  Backend& cpu = backend(state.range(0));
  const auto x = values(kRows * kWidth), weight = values(kWidth);
  auto hidden = x;
  std::vector<float> scratch(x.size());
  std::vector<uint16_t> out(x.size());
  for (auto _ : state)
    cpu.residual_norm({.x = x.data(),
                       .multiplier = 1e-6f,
                       .hidden = hidden.data(),
                       .next_weight = weight.data(),
                       .epsilon = 1e-5f,
                       .rows = kRows,
                       .width = kWidth,
                       .scratch = scratch.data(),
                       .out_type = ComputeType::kBFloat16,
                       .out = out.data()});
  set_bytes(state, 14.0 * kRows * kWidth);
}
BENCHMARK(residual_norm)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

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
  set_bytes(state, 8.0 * kRows * kWidth);
}
BENCHMARK(rope)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

void activate(benchmark::State& state, Activation activation, float limit = 0.0f) {
  Backend& cpu = backend(state.range(0));
  constexpr int64_t kInner = 1536;
  const auto x = values(kRows * 2 * kInner);
  std::vector<uint16_t> out(kRows * kInner);
  for (auto _ : state)
    cpu.activate({.x = x.data(),
                  .activation = {.kind = activation, .limit = limit},
                  .rows = kRows,
                  .width = kInner,
                  .out_type = ComputeType::kBFloat16,
                  .out = out.data()});
  set_bytes(state, 10.0 * kRows * kInner);
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
  set_bytes(state, 8.0 * kRows * kWidth);
}
BENCHMARK_CAPTURE(norm_heads, rms, false)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(norm_heads, centered, true)->MeasureProcessCPUTime();

void add(benchmark::State& state) {
  Backend& cpu = backend(1);
  const auto x = values(kRows * kWidth);
  auto out = x;
  for (auto _ : state)
    cpu.add({.x = x.data(), .multiplier = 1e-6f, .count = kRows * kWidth, .out = out.data()});
  set_bytes(state, 12.0 * kRows * kWidth);
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
  set_bytes(state, 8.0 * static_cast<double>(out.size()));
}
BENCHMARK(gather_rows)->MeasureProcessCPUTime();

void combine_rows(benchmark::State& state) {
  Backend& cpu = backend(1);
  const auto places = half_the_rows();
  const auto rows = static_cast<int64_t>(places.size());
  const auto x = values(kRows * kWidth);
  const std::vector<float> weights(static_cast<size_t>(kRows), 1e-6f);
  auto out = values(rows * kWidth);
  for (auto _ : state)
    cpu.combine_rows({.x = x.data(),
                      .places = places.data(),
                      .weights = weights.data(),
                      .count = kRows,
                      .rows = rows,
                      .width = kWidth,
                      .out = out.data()});
  set_bytes(state, 12.0 * static_cast<double>(out.size()));
}
BENCHMARK(combine_rows)->MeasureProcessCPUTime();

void copy_heads(benchmark::State& state) {
  Backend& cpu = backend(1);
  auto x = values(kRows * kWidth);
  std::vector<float> out(kRows * 9 * 96);
  for (auto _ : state)
    cpu.copy_heads({.x = {x.data(), kRows, 9, 64, kWidth},
                    .out = {out.data(), kRows, 9, 96, 9 * 96},
                    .width = 64});
  set_bytes(state, 8.0 * kRows * kWidth);
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
  set_bytes(state, static_cast<double>(x.size()));
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
  set_bytes(state, 3.0 * static_cast<double>(x.size()));
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
  set_bytes(state, 5.0 * static_cast<double>(x.size()));
}
BENCHMARK(store_kv)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

void observe_kv(benchmark::State& state) {
  Backend& cpu = backend(state.range(0));
  auto x = values(kRows * kKvHeads * kKvDim);
  std::vector<Segment> segments;
  for (int64_t i = 0; i < kRows; i += 512) segments.push_back({.q_begin = i, .q_count = 512});
  std::vector<ObservedRange> ranges(segments.size() * kKvHeads);
  std::vector<uint64_t> histogram(kKvHeads * MagnitudeHistogram::kBins);
  for (auto _ : state)
    cpu.observe_kv({.x = {x.data(), kRows, kKvHeads, kKvDim, kKvHeads * kKvDim},
                    .segments = segments,
                    .ranges = ranges.data(),
                    .histogram = histogram.data()});
  set_bytes(state, 4.0 * static_cast<double>(x.size()));
}
BENCHMARK(observe_kv)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

/// New keys and values: RoPE, then extremes and histograms where observed, then codes where stored.
void enter_cache(benchmark::State& state, bool observes, bool stores) {
  Backend& cpu = backend(state.range(0));
  auto k = values(kRows * kKvHeads * kKvDim), v = k;
  const std::vector<float> table(kRows * kKvDim / 2, 0.7f), scales(kKvHeads, 0.01f);
  std::vector<int32_t> positions(kRows);
  std::vector<Segment> segments;
  for (int64_t i = 0; i < kRows; ++i)
    positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % 512);
  for (int64_t i = 0; i < kRows; i += 512) segments.push_back({.q_begin = i, .q_count = 512});
  std::vector<ObservedRange> ranges(2 * segments.size() * kKvHeads);
  std::vector<uint64_t> histograms(2 * kKvHeads * MagnitudeHistogram::kBins), saturated(kKvHeads);
  std::vector<uint8_t> codes(2 * k.size());
  const auto side = [&](std::vector<float>& x, int64_t index) {
    const auto half = [&](auto& all) { return all.data() + index * std::ssize(all) / 2; };
    CacheSide result{.x = {x.data(), kRows, kKvHeads, kKvDim, kKvHeads * kKvDim}};
    if (observes) result.ranges = half(ranges), result.histogram = half(histograms);
    if (!stores) return result;
    result.dtype = KvDType::kFp8E4m3;
    result.scales = scales.data();
    result.out = half(codes);
    result.saturated = saturated.data();
    return result;
  };
  const EnterCacheArgs args{.k = side(k, 0),
                            .v = side(v, 1),
                            .rope = {.x = {k.data(), kRows, kKvHeads, kKvDim, kKvHeads * kKvDim},
                                     .positions = positions.data(),
                                     .cos = table.data(),
                                     .sin = table.data(),
                                     .rotary_dim = kKvDim},
                            .segments = segments};
  for (auto _ : state) cpu.enter_cache(args);
  set_bytes(state, (stores ? 5.0 : 4.0) * 2.0 * static_cast<double>(k.size()));
}
BENCHMARK_CAPTURE(enter_cache, observed, true, false)->Arg(1)->Arg(2)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(enter_cache, stored, false, true)->Arg(1)->Arg(2)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(enter_cache, both, true, true)->Arg(1)->Arg(2)->MeasureProcessCPUTime();

}  // namespace
}  // namespace kvcal::bench
