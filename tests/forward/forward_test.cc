#include <algorithm>
#include <cmath>

#include "forward/decoder.h"
#include "forward/layerwise.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

constexpr double kTolerance = 1e-4;

/// 0 where there are no values.
float head_amax(const KvObservation& seen, size_t sample, size_t head, size_t heads) {
  const ObservedRange& range = seen.ranges[sample * heads + head];
  return range.min > range.max ? 0.0f : std::max(std::fabs(range.min), std::fabs(range.max));
}

}  // namespace

TEST_CASE("samples packed together do not see each other, in any fixture") {
  for (const std::string& name : test::model_fixture_names()) {
    INFO(name);
    ModelFixture fixture(name);
    // The same sample twice with a stranger between: packing must not let samples see each other.
    const std::vector<TokenId> other(7, 5);
    const std::vector<std::span<const TokenId>> samples{fixture.ids, other, fixture.ids};
    SilentDiagnostics silent;
    LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples,
                             {.batch_tokens = 1000}, silent);
    for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
      if (!fixture.config.has_attention(layer)) {
        forward.advance_without_attention(layer);
        continue;
      }
      const LayerObservation seen =
          layer % 2 ? forward.observe(layer) : forward.observe_and_advance_exact(layer);
      if (layer % 2) forward.advance_exact(layer);
      if (!fixture.config.has_own_cache(layer)) continue;
      const auto heads = static_cast<size_t>(fixture.config.cache(layer).heads);
      const Json& expected = fixture.expected.at("layers").at(static_cast<size_t>(layer));
      for (size_t head = 0; head < heads; ++head)
        for (const size_t sample : {size_t{0}, size_t{2}}) {
          INFO("layer " << layer << " head " << head << " sample " << sample);
          CHECK(test::relative_error(head_amax(seen.k, sample, head, heads),
                                     expected["k_head_amax"][head]) <= kTolerance);
          CHECK(test::relative_error(head_amax(seen.v, sample, head, heads),
                                     expected["v_head_amax"][head]) <= kTolerance);
        }
    }
  }
}

namespace {

/// K of every layer that attends, with a quantized cache before it.
std::vector<ObservedRange> observed_k(const std::string& name, const LayerwiseOptions& options,
                                      int threads) {
  ModelFixture fixture(name, "cpu", threads);
  const std::vector<TokenId> head(fixture.ids.begin(), fixture.ids.begin() + 9);
  const std::vector<std::span<const TokenId>> samples{fixture.ids, head, fixture.ids, head};
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples, options,
                           silent);
  std::vector<ObservedRange> all;
  for (int64_t layer = 0; layer <= fixture.config.last_attention_layer(); ++layer) {
    if (!fixture.config.has_attention(layer)) {
      forward.advance_without_attention(layer);
      continue;
    }
    const auto heads = static_cast<size_t>(fixture.config.cache(layer).heads);
    const KvQuantization quantization{KvDType::kFp8E4m3, std::vector<float>(heads, 0.03f),
                                      std::vector<float>(heads, 0.01f)};
    const auto ranges = forward.observe(layer).k.ranges;
    all.insert(all.end(), ranges.begin(), ranges.end());
    if (layer != fixture.config.last_attention_layer()) forward.advance(layer, quantization);
  }
  return all;
}

/// Everything seen of layer 1 behind layer 0 with an exact cache, or with one of the given
/// elements.
std::string seen_behind(ComputeType compute, std::optional<KvDType> cache) {
  ModelFixture fixture("llama");
  const test::FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.compute_type = compute, .batch_tokens = 64}, silent);
  forward.observe(0);
  const std::vector<float> ones(static_cast<size_t>(fixture.config.cache(0).heads), 1.0f);
  if (cache)
    forward.advance(0, {*cache, ones, ones});
  else
    forward.advance_exact(0);
  test::SeenBytes seen;
  seen.add(forward.observe(1));
  return seen.bytes();
}

}  // namespace

TEST_CASE("the exact cache has float32, in bfloat16 the elements of transformers' cache") {
  const auto is_exact = [](ComputeType compute, KvDType cache) {
    return seen_behind(compute, std::nullopt) == seen_behind(compute, cache);
  };
  CHECK(is_exact(ComputeType::kFloat32, KvDType::kFloat32));
  CHECK_FALSE(is_exact(ComputeType::kFloat32, KvDType::kBFloat16));
  if (!ModelFixture("llama").backend->supports(ComputeType::kBFloat16)) return;
  CHECK(is_exact(ComputeType::kBFloat16, KvDType::kBFloat16));
  CHECK_FALSE(is_exact(ComputeType::kBFloat16, KvDType::kFloat32));
}

TEST_CASE("batch size, memory limit and threads change no byte of what is observed") {
  // Dense; experts; a latent cache; windows and soft-caps; each kind of recurrence; caches that
  // several layers read; experts beside an MLP; streams that gates mix, with n-grams.
  for (const std::string name :
       {"llama", "mixtral", "deepseek_v3", "gemma2", "nemotron_h", "jamba", "qwen3_next",
        "gemma4_e2b", "gemma4_26b", "glm_moe_dsa_sparse", "qwen4_exp"})
    for (const auto compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      if (!ModelFixture(name).backend->supports(compute)) continue;
      std::vector<std::vector<ObservedRange>> runs;
      for (const int threads : {1, 2})
        for (const int64_t batch_tokens : {1, 64, 4096})
          for (const bool limited : {false, true}) {
            LayerwiseOptions options{.compute_type = compute,
                                     .batch_tokens = batch_tokens,
                                     .memory_limit = {},
                                     .scratch_folder = fs::temp_directory_path()};
            if (limited) options.memory_limit = 600'000;
            runs.push_back(observed_k(name, options, threads));
          }
      for (const auto& run : runs) {
        INFO(name << " in " << name_of(compute));
        REQUIRE(run.size() == runs.front().size());
        for (size_t i = 0; i < run.size(); ++i) {
          CHECK(run[i].min == runs.front()[i].min);
          CHECK(run[i].max == runs.front()[i].max);
        }
      }
    }
}

TEST_CASE("they change no byte of queries, Linear inputs and lm_head's input either") {
  const test::ScratchFolder scratch;
  for (const std::string name :
       {"llama", "mixtral", "deepseek_v3", "jamba", "gemma4_e2b", "glm_moe_dsa_sparse"}) {
    std::vector<std::string> runs;
    for (const int threads : {1, 2})
      for (const int64_t batch_tokens : {1, 64, 4096}) {
        ModelFixture fixture(name, "cpu", threads);
        const test::FixtureSamples samples(fixture);
        LayerwiseOptions options{.batch_tokens = batch_tokens,
                                 .observation = test::kObserveAll,
                                 .scratch_folder = scratch.path()};
        if (batch_tokens == 64) options.memory_limit = 1'500'000;
        SilentDiagnostics silent;
        LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                                 options, silent);
        runs.push_back(test::run_layers(forward, fixture.config, test::RunMode::kQuantized,
                                        test::kObserveAll));
      }
    for (const std::string& run : runs) {
      INFO(name);
      const bool same = run == runs.front();
      CHECK(same);
    }
  }
}

TEST_CASE("a memory limit that cannot hold a layer is an error before any work") {
  ModelFixture fixture("llama");
  const std::vector<std::span<const TokenId>> samples{fixture.ids};
  SilentDiagnostics silent;
  const LayerwiseOptions options{.compute_type = ComputeType::kFloat32,
                                 .batch_tokens = 64,
                                 .memory_limit = 1000,
                                 .scratch_folder = {}};
  CHECK_THROWS_AS(
      LayerwiseForward(fixture.config, fixture.weights, *fixture.backend, samples, options, silent),
      Error);
}
