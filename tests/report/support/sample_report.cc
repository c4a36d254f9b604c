#include "report/support/sample_report.h"

#include <algorithm>
#include <cmath>

namespace kvcal::test {
namespace {

using report::CacheTensor;

/// Between 0 and 1, as if by chance, the same on every machine.
double noise(int64_t a, int64_t b) {
  const auto mixed = static_cast<uint32_t>(a * 7919 + b * 104729) * 2654435761u;
  return static_cast<double>(mixed >> 8) / static_cast<double>(1u << 24);
}

CacheTensor tensor_of(const SampleSize& size, int64_t layer, int64_t side) {
  CacheTensor tensor;
  for (int64_t head = 0; head < size.heads; ++head) {
    const double amax = std::exp2(-2.0 + 6.0 * noise(layer * 2 + side, head));
    tensor.head_amax.push_back(static_cast<float>(amax));
    if (size.has_head_scales) tensor.scales.push_back(static_cast<float>(amax / 460.0));
  }
  tensor.amax = std::ranges::max(tensor.head_amax);
  if (!size.has_head_scales) tensor.scales = {*tensor.amax / 460.0f};
  tensor.saturated = noise(layer, side + 100) * 1e-4;
  OctaveCounts counts{.zeros = 12, .first_octave = -20, .counts = {}};
  for (int64_t i = 0; i < 48; ++i)
    counts.counts.push_back(
        static_cast<uint64_t>(1e6 * std::exp(-std::pow(static_cast<double>(i) - 34.0, 2) / 40.0) +
                              100.0 * noise(layer + i, side)));
  tensor.histogram = counts;
  for (int64_t samples = 1; samples <= 64; samples *= 2) {
    const double part =
        1.0 - 0.4 * noise(layer, side) * (1.0 - std::log2(static_cast<double>(samples)) / 6.0);
    tensor.convergence.num_samples.push_back(samples);
    tensor.convergence.running.push_back({static_cast<float>(part) * *tensor.amax});
  }
  tensor.convergence.low = {0.9f * *tensor.amax};
  tensor.convergence.high = {*tensor.amax};
  for (int64_t bucket = 0; bucket < 18; ++bucket)
    tensor.position_amax.push_back(
        *tensor.amax * (bucket == 17 ? 1.0f : static_cast<float>(noise(layer + bucket, side))));
  tensor.largest = {.record = 3, .first = layer % 5, .last = layer % 5};
  if (layer % 5 == 0) tensor.largest->text = "<|im_start|>";
  return tensor;
}

report::LayerDamage damage_of(const SampleSize& size, int64_t layer) {
  report::LayerDamage damage;
  damage.calibrated.output_error = static_cast<float>(0.02 + 0.05 * noise(layer, 3));
  damage.calibrated.weights_kl = static_cast<float>(0.001 + 0.01 * noise(layer, 4));
  damage.unit = damage.calibrated;
  damage.unit.output_error *= 1.5f;
  for (int64_t head = 0; head < size.heads; ++head)
    damage.calibrated.head_output_error.push_back(
        static_cast<float>(0.01 + 0.1 * noise(layer + head, 5)));
  return damage;
}

}  // namespace

report::CheckpointReport sample_report(const SampleSize& size) {
  report::CheckpointReport report;
  report.name = "Sample";
  report.path = "models/Sample";
  report.model_type = "llama";
  report.scale_format = "compressed-tensors";
  report.version = "0.0.0";
  report.parameters = 1'000'000;
  report.bytes = 2'000'000;
  report.cache_bytes_16_bit = 4096;
  report.cache_bytes_fp8 = 2048;
  report.architecture = {{"num hidden layers", std::to_string(size.layers)}};
  report.origin = {{"dataset path", "data.jsonl"}};
  report.tensors = {{"attention", 12, 1'500'000}, {"norms", 9, 500'000}};
  report.engine_words = {{.name = "vllm",
                          .engine = "vLLM",
                          .version = "0.32",
                          .format = "compressed-tensors",
                          .reads = Reads::kYes,
                          .note = "per tensor"}};
  for (int64_t layer = 0; layer < size.layers; ++layer) {
    report.layers.push_back({.layer = layer,
                             .dtype = "BF16",
                             .bytes = 1000,
                             .k = tensor_of(size, layer, 0),
                             .v = tensor_of(size, layer, 1),
                             .damage = damage_of(size, layer)});
    for (int64_t i = 0; i < size.linears_per_layer; ++i)
      report.linears.push_back({.module = "m",
                                .layer = layer,
                                .kind = "mlp.linear_" + std::to_string(i % 7),
                                .weight_scale = static_cast<float>(0.01 + noise(layer, i)),
                                .num_weight_scales = 1,
                                .input = "static",
                                .input_scale = static_cast<float>(0.01 + noise(i, layer))});
  }
  return report;
}

std::vector<VerifyReport> sample_engines() {
  const auto tensor = [](int64_t layer, const char* side) {
    return "model.layers." + std::to_string(layer) + ".self_attn." + side + "_scale";
  };
  const EngineScale one{.values = {1.0f}, .source = ""};
  VerifyReport vllm;
  vllm.engine = "vllm";
  vllm.version = "0.32";
  vllm.kv_cache_dtype = "fp8_e4m3";
  vllm.layers = {
      {.layer = 0, .k = {{0.02f}, tensor(0, "k")}, .v = {{0.001f}, tensor(0, "v")}},
      {.layer = 1, .k = {{0.01f, 0.03f}, tensor(1, "k")}, .v = {{0.002f, 0.002f}, tensor(1, "v")}},
      {.layer = 2, .k = {{0.02f}, tensor(2, "k")}, .v = one}};
  vllm.findings = {{.severity = Severity::kError,
                    .layers = {2},
                    .message = "v_scale is lost: <script>alert(1)</script>",
                    .remedy = "kvcal convert --format compressed-tensors"},
                   {.severity = Severity::kNote,
                    .layers = {},
                    .message = "needs --kv-cache-dtype fp8",
                    .remedy = ""}};
  VerifyReport tgi;
  tgi.engine = "tgi";
  tgi.version = "2026-01";
  tgi.kv_cache_dtype = "auto";
  tgi.loads = false;
  tgi.layers = {{.layer = 0, .k = one, .v = one},
                {.layer = 1, .k = {{std::nanf("")}, ""}, .v = one},
                {.layer = 2, .k = one, .v = one, .is_16_bit = true}};
  return {vllm, tgi};
}

}  // namespace kvcal::test
