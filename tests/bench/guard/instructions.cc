// Fixed workloads on one thread, whose instructions are counted under callgrind between entry and
// end of kvcal_counted_workload (check_instructions.cmake).
//   instructions WORKLOAD
// What is made once (kernels, tables, packed weights where they are not the point) is made before.
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/program.h"
#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "forward/layerwise.h"
#include "kernels/backends.h"
#include "quant/observations.h"
#include "support/scratch_folder.h"
#include "tokenizers/tokenizer.h"

/// The name that callgrind is told. What follows the call keeps it from becoming a jump, at which
/// counting would end.
extern "C" [[gnu::noinline]] void kvcal_counted_workload(const std::function<void()>& body) {
  body();
  asm volatile("" ::: "memory");
}

namespace kvcal {
namespace {

const std::string kTests = KVCAL_TESTS_DIR;

/// Once so that everything is made, then counted.
void count(const std::function<void()>& body) {
  body();
  kvcal_counted_workload(body);
}

Backend& cpu() {
  static const auto made = kBackends.at("cpu")({.num_threads = 1, .device_index = 0});
  return *made;
}

std::vector<float> values(int64_t size) {
  std::vector<float> result(static_cast<size_t>(size));
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return result;
}

/// Byte-level BPE with the pre-tokenizer's regular expression of Llama 3.
void tokenize() {
  Json json = parse_json(read_text(kTests + "/fixtures/text/tokenizers/base_bytelevel.json"));
  const std::string words =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", words}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", false}}}}};
  const test::ScratchFolder folder;
  test::write_file(folder / "tokenizer.json", json.dump());
  const std::string text = read_text(kTests + "/../datasets/evaluation.txt").substr(0, 16384);
  // A new one to count with: words that were met before are looked up.
  make_tokenizer(folder.path())->encode(text, false);
  const auto tokenizer = make_tokenizer(folder.path());
  kvcal_counted_workload([&] { KVCAL_CHECK(!tokenizer->encode(text, false).empty()); });
}

/// Half-precision weights to float32 panels.
void pack() {
  const std::vector<std::byte> bytes(size_t{768} * 576 * 2);
  const std::vector<TensorView> parts{{"w", DType::kF16, Shape{768, 576}, bytes}};
  count([&] { cpu().pack(parts, ComputeType::kFloat32); });
}

/// What a layer does beside products and attention, for 512 tokens.
void passes() {
  constexpr int64_t kRows = 512, kWidth = 576, kInner = 1536, kHeads = 3, kDim = 64;
  constexpr int64_t kKvWidth = kHeads * kDim;
  const auto x = values(kRows * kWidth), weight = values(kWidth);
  const auto gate_up = values(kRows * 2 * kInner);
  auto hidden = x, k = values(kRows * kKvWidth), v = k;
  std::vector<float> scratch(x.size());
  std::vector<uint16_t> out(static_cast<size_t>(kRows * kInner));
  const std::vector<float> table(kRows * kDim / 2, 0.7f), scales(kHeads, 0.01f);
  std::vector<int32_t> positions(kRows);
  for (int32_t i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = i;
  const std::vector<Segment> segments{{.q_count = kRows}};
  std::vector<ObservedRange> ranges(2 * kHeads);
  std::vector<uint64_t> histograms(2 * kHeads * MagnitudeHistogram::kBins), saturated(kHeads);
  std::vector<uint8_t> codes(2 * k.size());
  const auto side = [&](std::vector<float>& data, size_t index) {
    return CacheSide{.x = {data.data(), kRows, kHeads, kDim, kKvWidth},
                     .ranges = ranges.data() + index * kHeads,
                     .histogram = histograms.data() + index * kHeads * MagnitudeHistogram::kBins,
                     .dtype = KvDType::kFp8E4m3,
                     .scales = scales.data(),
                     .out = codes.data() + index * data.size(),
                     .saturated = saturated.data()};
  };
  count([&] {
    cpu().residual_norm({.x = x.data(),
                         .multiplier = 1e-6f,
                         .hidden = hidden.data(),
                         .next_weight = weight.data(),
                         .epsilon = 1e-5f,
                         .rows = kRows,
                         .width = kWidth,
                         .scratch = scratch.data(),
                         .out_type = ComputeType::kBFloat16,
                         .out = out.data()});
    cpu().enter_cache({.k = side(k, 0),
                       .v = side(v, 1),
                       .rope = {.x = {k.data(), kRows, kHeads, kDim, kKvWidth},
                                .positions = positions.data(),
                                .cos = table.data(),
                                .sin = table.data(),
                                .rotary_dim = kDim},
                       .segments = segments});
    cpu().activate({.x = gate_up.data(),
                    .rows = kRows,
                    .width = kInner,
                    .out_type = ComputeType::kBFloat16,
                    .out = out.data()});
  });
}

/// Causal, grouped queries, float32 products, keys and values in float32 and in FP8.
void attention() {
  constexpr int64_t kLength = 256, kHeads = 6, kKvHeads = 2, kDim = 64;
  const auto q = values(kLength * kHeads * kDim), kv = values(kLength * kKvHeads * kDim);
  const std::vector<uint8_t> codes(kv.size(), 0x31);
  const std::vector<float> scales(kKvHeads, 0.01f);
  const std::vector<Segment> segments{{.q_count = kLength, .kv_count = kLength}};
  std::vector<float> out(q.size());
  AttentionArgs args{.q = q.data(),
                     .q_row_stride = kHeads * kDim,
                     .k = kv.data(),
                     .v = kv.data(),
                     .k_scales = scales.data(),
                     .v_scales = scales.data(),
                     .segments = segments,
                     .heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kDim,
                     .softmax_scale = 0.125f,
                     .out = out.data()};
  AttentionArgs fp8 = args;
  fp8.k = fp8.v = codes.data();
  fp8.kv_dtype = KvDType::kFp8E4m3;
  count([&] {
    cpu().attention(args);
    cpu().attention(fp8);
  });
}

/// Products, at a height that fills the kernels and with a row left over.
void matmul() {
  const auto w = values(768 * 576);
  const std::vector<TensorView> parts{
      {"w", DType::kF32, Shape{768, 576}, std::as_bytes(std::span(w))}};
  const auto weight = cpu().pack(parts, ComputeType::kFloat32);
  const auto x = values(129 * 576);
  std::vector<float> out(129 * 768);
  count([&] { cpu().matmul({.x = x.data(), .weight = *weight, .rows = 129, .out = out.data()}); });
}

/// All of a small model's calibration, quantized.
void calibration() {
  const ModelDir model_dir(kTests + "/fixtures/models/llama");
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const Recipe recipe = parse_recipe(
      "default_stage: {default_modifiers: {QuantizationModifier: {kv_cache_scheme: {num_bits: 8, "
      "type: float, strategy: tensor, dynamic: false, symmetric: true, observer: minmax}}}}");
  std::vector<Sample> samples;
  for (int64_t i = 0; i < 4; ++i) {
    Sample& sample = samples.emplace_back(Sample{.index = i, .ids = {}});
    for (int64_t at = 0; at < 100; ++at)
      sample.ids.push_back(static_cast<TokenId>((i * 31 + at * 7) % config.vocab_size));
  }
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  SilentDiagnostics quiet;
  count([&] {
    LayerwiseForward forward(config, weights, cpu(), ids, {.batch_tokens = 256}, quiet);
    calibrate(forward, config, resolve_plan(recipe, config, quiet), samples, {}, nullptr, quiet);
  });
}

const std::map<std::string, void (*)()> kWorkloads{
    {"tokenize", tokenize},   {"pack", pack},     {"passes", passes},
    {"attention", attention}, {"matmul", matmul}, {"calibration", calibration}};

}  // namespace
}  // namespace kvcal

int main(int argc, char** argv) {
  return kvcal::bench::run_program([&] {
    const auto found = kvcal::kWorkloads.find(argc == 2 ? argv[1] : "");
    if (found == kvcal::kWorkloads.end()) {
      std::string names;
      for (const auto& [name, run] : kvcal::kWorkloads) names += " " + name;
      kvcal::fail("usage: instructions WORKLOAD, one of", names);
    }
    found->second();
  });
}
