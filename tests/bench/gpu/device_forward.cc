// A checkpoint's forward on a device: prefill of random tokens layer by layer as calibration runs
// it, against the machine's bf16 matrix rate in the same run, and decoding with a 16-bit and an FP8
// cache.
//   device_forward MODEL [--device cuda[:N]] [--samples 512] [--tokens 2048] [--decode 128]
//   [--prompt 512] [--parts]
// Prefill's time on the device's clock is told by part, and the algorithms of its products.
// --square: the size of the product that gives the rate. --parts: the prefill's time by operation,
// each waited for, which costs some of what runs side by side otherwise. MODEL may come from `kvcal
// synth`.
#include <cstdio>
#include <map>

#include "bench/gpu/bench_device.h"
#include "bench/program.h"
#include "bench/timed_backend.h"
#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "forward/decoder.h"
#include "forward/layerwise.h"

namespace kvcal::bench {
namespace {

struct Options {
  std::string model, device = std::string(gpu_device_name());
  int64_t samples = 512, tokens = 2048, decode = 128, prompt = 512, square = 8192;
  bool parts = false;
};

double matmul_rate(Device& device, int64_t size) {
  const auto weight = device.random_weight(size, size, ComputeType::kBFloat16);
  const Buffer x = device.random_bf16(size * size);
  const Buffer out = device.backend().allocate(static_cast<size_t>(size * size) * 4);
  const double n = static_cast<double>(size);
  return 2.0 * n * n * n / device.milliseconds([&] {
    device.backend().matmul(
        {.x = x.data(), .weight = *weight, .rows = size, .out = out.as<float>()});
  }) * 1e3;
}

/// Multiply-adds a token and layer of a dense model, times two, and attention's of a causal
/// sequence.
double needed_flop(const ModelConfig& config, int64_t layers, double samples, double tokens) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const double inner = static_cast<double>(config.intermediate_size);
  const double linears = 2.0 * hidden *
                         (2.0 * static_cast<double>(config.attention(0).query_width()) +
                          2.0 * static_cast<double>(config.attention(0).key_width()) + 3.0 * inner);
  const double pairs = tokens * (tokens + 1) / 2;
  const double attention = 4.0 * static_cast<double>(config.attention(0).query_width()) * pairs;
  return static_cast<double>(layers) * samples * (linears * tokens + attention);
}

/// Runs all layers; seconds, without embedding.
double run_layers(const Options& options, const ModelConfig& config, const Weights& weights,
                  Backend& backend) {
  std::mt19937 random(3);
  std::vector<std::vector<TokenId>> ids(static_cast<size_t>(options.samples));
  std::vector<std::span<const TokenId>> samples;
  for (auto& sample : ids) {
    for (int64_t i = 0; i < options.tokens; ++i)
      sample.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(config.vocab_size)));
    samples.emplace_back(sample);
  }
  SilentDiagnostics quiet;
  auto begin = Clock::now();
  LayerwiseForward forward(config, weights, backend, samples,
                           {.compute_type = backend.preferred_compute_type()}, quiet);
  std::printf("embedding %.2f s\n", seconds_since(begin));
  begin = Clock::now();
  const int64_t layers = config.num_hidden_layers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const LayerObservation seen = forward.observe(layer);
    if (layer == config.last_attention_layer()) break;
    KvQuantization quantization;
    const auto heads = static_cast<size_t>(config.cache(layer).heads);
    for (auto [side, scales] :
         {std::pair{&seen.k, &quantization.k_scales}, {&seen.v, &quantization.v_scales}}) {
      float amax = 1e-6f;
      for (const ObservedRange& range : side->ranges)
        amax = std::max({amax, range.max, -range.min});
      scales->assign(heads, amax / 448.0f);
    }
    forward.advance(layer, quantization);
  }
  return seconds_since(begin);
}

/// The device's time by part since before, a line, and the algorithms of products, a line each.
void print_device_work(Backend& backend, const std::vector<PartTime>& before, double seconds) {
  std::vector<PartTime> parts = backend.part_times();
  double idle = seconds;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].seconds -= before[i].seconds;
    idle -= parts[i].seconds;
    std::printf("%s%s %.3f s", i == 0 ? "  by part: " : ", ", parts[i].part.c_str(),
                parts[i].seconds);
  }
  if (!parts.empty()) std::printf(", idle %.3f s\n", std::max(idle, 0.0));
  for (const ProductChoice& choice : backend.product_choices())
    std::printf("  %s: algorithm %s, %s\n", choice.product.c_str(), choice.algorithm.c_str(),
                choice.reason.c_str());
}

void prefill(const Options& options, const ModelConfig& config, const Weights& weights,
             Device& device) {
  const int64_t layers = config.num_hidden_layers;
  const double rate = matmul_rate(device, options.square);
  const std::vector<PartTime> before = device.backend().part_times();
  const double seconds = run_layers(options, config, weights, device.backend());
  const double tokens = static_cast<double>(options.samples * options.tokens);
  // The last layer stops after K and V.
  const double flop = needed_flop(config, layers - 1, static_cast<double>(options.samples),
                                  static_cast<double>(options.tokens));
  std::printf(
      "prefill with FP8 KV: %.0f tokens, %lld layers, %.2f s, %.0f tokens/s, %.1f TFLOP/s needed, "
      "%.0f %% of the matrix rate (%.1f)\n",
      tokens, static_cast<long long>(layers), seconds, tokens / seconds, flop / seconds / 1e12,
      100 * flop / seconds / rate, rate / 1e12);
  print_device_work(device.backend(), before, seconds);
}

void prefill_by_parts(const Options& options, const ModelConfig& config, const Weights& weights,
                      std::unique_ptr<Backend> backend) {
  // A copy to the host waits for the operations before it.
  TimedBackend timed(std::move(backend), [](Backend& inner) {
    const Buffer word = inner.allocate(sizeof(float));
    float value = 0.0f;
    inner.copy_out(word.data(), std::as_writable_bytes(std::span(&value, 1)));
  });
  const double seconds = run_layers(options, config, weights, timed);
  std::vector<std::pair<std::string, OperationTime>> rows(timed.operations.begin(),
                                                          timed.operations.end());
  std::ranges::sort(rows, std::greater<>(), [](const auto& row) { return row.second.seconds; });
  std::printf("prefill by operation: %lld samples of %lld, %.2f s\n",
              static_cast<long long>(options.samples), static_cast<long long>(options.tokens),
              seconds);
  for (const auto& [name, time] : rows) {
    std::printf("  %-18s %6lld calls %8.3f s %5.1f %%", name.c_str(),
                static_cast<long long>(time.calls), time.seconds, 100 * time.seconds / seconds);
    if (time.flop > 0) std::printf(" %6.1f TFLOP/s", time.flop / time.seconds / 1e12);
    std::printf("\n");
  }
}

void decode(const Options& options, const ModelConfig& config, const Weights& weights,
            Device& device) {
  Decoder decoder(config, weights, device.backend(), device.backend().preferred_compute_type());
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < options.prompt; ++i)
    prompt.push_back(static_cast<TokenId>((i * 7919) % config.vocab_size));
  const std::vector<LayerKvScales> scales(static_cast<size_t>(config.num_hidden_layers),
                                          {.k = {{0.05f}}, .v = {{0.05f}}});
  for (const KvDType dtype : {KvDType::kBFloat16, KvDType::kFp8E4m3}) {
    KvCache cache = decoder.make_cache(dtype, scales, options.prompt + options.decode + 4);
    decoder.step(prompt, cache);
    TokenId next = 1;
    const auto step = [&] {
      const std::vector<float> logits = decoder.step(std::span(&next, 1), cache);
      next = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    };
    step();
    step();
    const auto begin = Clock::now();
    for (int64_t i = 0; i < options.decode; ++i) step();
    const double seconds = seconds_since(begin);
    std::printf("decoding with a %s cache behind %lld tokens: %.1f tokens/s\n",
                std::string(name_of(dtype)).c_str(), static_cast<long long>(options.prompt),
                static_cast<double>(options.decode) / seconds);
  }
}

void run(const Options& options) {
  const ModelDir model_dir(options.model);
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  Device device(options.device, false, {.times_products = true, .times_parts = !options.parts});
  std::printf("%s\n", device.backend().description().c_str());
  if (options.parts) return prefill_by_parts(options, config, weights, device.release());
  if (options.samples > 0) prefill(options, config, weights, device);
  if (options.decode > 0) decode(options, config, weights, device);
}

}  // namespace
}  // namespace kvcal::bench

int main(int argc, char** argv) {
  return kvcal::bench::run_program([&] {
    kvcal::bench::Options options;
    const std::map<std::string, int64_t*> numbers{{"--samples", &options.samples},
                                                  {"--tokens", &options.tokens},
                                                  {"--decode", &options.decode},
                                                  {"--prompt", &options.prompt},
                                                  {"--square", &options.square}};
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const bool has_value = i + 1 < argc;
      if (const auto number = numbers.find(word); number != numbers.end() && has_value)
        *number->second = std::stoll(argv[++i]);
      else if (word == "--parts")
        options.parts = true;
      else if (word == "--device" && has_value)
        options.device = argv[++i];
      else
        options.model = word;
    }
    if (options.model.empty())
      kvcal::fail(
          "usage: device_forward MODEL [--device D] [--samples N] [--tokens N] [--decode N] "
          "[--prompt N] [--parts]");
    kvcal::bench::run(options);
  });
}
