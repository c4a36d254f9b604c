// New tokens a second when texts are written together, beside those of one text after the other in
// the same run, and beside what reading the weights once a step allows.
//   batch_decode MODEL [--slots 1,4,16,32] [--prompt 512] [--tokens 32] [--cache-dtype float16]
//   [--compute-dtype float32] [--threads N]
// Prompts are random ids; their own time is not counted. FP8 caches have scale 1.0.
#include <cstdio>
#include <random>
#include <thread>

#include "bench/instruction_loop.h"
#include "bench/program.h"
#include "checkpoint/model_dir.h"
#include "eval/generate.h"
#include "kernels/backends.h"
#include "run/subject.h"
#include "stored/kv_scales.h"

namespace kvcal::bench {
namespace {

struct Options {
  std::string model, cache_dtype = "float16", compute_dtype = "float32";
  std::vector<int64_t> slots{1, 4, 16, 32};
  int64_t prompt = 512, tokens = 32, threads = 0;
};

Options parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) fail("usage: batch_decode MODEL [--OPTION VALUE]...");
  Options options{.model = argv[1]};
  for (int i = 2; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--slots") {
      options.slots = numbers_in(value);
    } else if (name == "--cache-dtype") {
      options.cache_dtype = value;
    } else if (name == "--compute-dtype") {
      options.compute_dtype = value;
    } else if (name == "--prompt") {
      options.prompt = std::stoll(value);
    } else if (name == "--tokens") {
      options.tokens = std::stoll(value);
    } else if (name == "--threads") {
      options.threads = std::stoll(value);
    } else {
      fail("unknown option ", name);
    }
  }
  return options;
}

template <class T>
T named(std::initializer_list<T> values, const std::string& name) {
  for (const T value : values)
    if (name_of(value) == name) return value;
  fail("unknown dtype '", name, "'");
}

std::vector<BatchPrompt> random_prompts(const Options& options, int64_t count, int64_t vocab) {
  std::mt19937 random(3);
  std::vector<BatchPrompt> prompts(static_cast<size_t>(count));
  for (BatchPrompt& prompt : prompts) {
    for (int64_t i = 0; i < options.prompt; ++i)
      prompt.ids.push_back(static_cast<TokenId>(random() % static_cast<uint64_t>(vocab)));
    prompt.max_new_tokens = options.tokens;
  }
  return prompts;
}

void run(const Options& options) {
  const ModelDir model_dir(options.model);
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const auto backend = kBackends.at("cpu")({.num_threads = static_cast<int>(options.threads)});
  Decoder decoder(config, weights, *backend,
                  named({ComputeType::kFloat32, ComputeType::kBFloat16, ComputeType::kFloat16},
                        options.compute_dtype));
  const KvDType dtype = named({KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                               KvDType::kFp8E4m3, KvDType::kFp8E5m2},
                              options.cache_dtype);
  std::vector<LayerKvScales> scales;
  if (is_fp8(dtype)) scales = unit_scales(config);

  KvCache single = decoder.make_cache(dtype, scales, options.prompt + options.tokens);
  const auto prompts = random_prompts(options, 1, config.vocab_size);
  const Generation alone =
      generate(decoder, single, prompts[0].ids,
               {.max_new_tokens = options.tokens, .sampling = {}, .stop_tokens = {}});
  const double one_by_one = static_cast<double>(options.tokens - 1) / alone.decode_seconds;
  std::printf("%s, %s cache, prompts of %lld tokens, %lld new ones\n",
              backend->description().c_str(), options.cache_dtype.c_str(),
              static_cast<long long>(options.prompt), static_cast<long long>(options.tokens));
  const int threads = options.threads > 0 ? static_cast<int>(options.threads)
                                          : static_cast<int>(std::thread::hardware_concurrency());
  const double reading = read_rate(threads), bytes = static_cast<double>(tensor_bytes(model_dir));
  std::printf("memory is read at %.1f GB/s: %.1f MB of weights at most %.1f times a second\n",
              reading / 1e9, bytes / 1e6, reading / bytes);
  std::printf("one by one: %8.1f tokens/s, %.1f %% of that\n", one_by_one,
              100 * one_by_one * bytes / reading);
  for (const int64_t slots : options.slots) {
    const auto batch = random_prompts(options, slots, config.vocab_size);
    KvCache cache = decoder.make_cache(dtype, scales, longest_text(batch), slots);
    const BatchUse use = generate_together(decoder, cache, batch, {});
    const double rate = static_cast<double>(use.new_tokens - slots) / use.decode_seconds;
    std::printf("%3lld together: %6.1f tokens/s, %.2f times\n", static_cast<long long>(slots), rate,
                rate / one_by_one);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace kvcal::bench

int main(int argc, char** argv) {
  return kvcal::bench::run_program([&] { kvcal::bench::run(kvcal::bench::parse(argc, argv)); });
}
