// The draft layer of each kind of name against reference/make_drafts.py, which puts
// transformers' own layers together as vLLM does.
#include "family/expected_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "forward/divided_forward.h"
#include "forward/layerwise.h"
#include "forward/support/family_check.h"
#include "forward/support/forward_run.h"
#include "stored/read_model_config.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

const std::vector<std::string> kDrafts{"glm4_moe", "deepseek_v3", "qwen3_next", "qwen3_5"};

/// A checkpoint with its draft layer, on one backend.
struct DraftModel {
  explicit DraftModel(const std::string& name, const std::string& backend_name = "cpu")
      : model_dir(test::draft_fixture(name)),
        config(test::config_with_draft(model_dir)),
        weights(model_dir, config),
        backend(test::make_backend(backend_name, 2)),
        expected(parse_json(read_text(fs::path(test::draft_fixture(name)) / "expected.json"))),
        ids(expected["ids"].get<std::vector<TokenId>>()) {}

  ModelDir model_dir;
  ModelConfig config;
  Weights weights;
  std::unique_ptr<Backend> backend;
  Json expected;
  std::vector<TokenId> ids;
};

LayerObservation observe_draft(DraftModel& model, LayerForward& forward,
                               const ObservationRequest& request = {}) {
  forward.request(request);
  for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) {
    if (model.config.has_attention(layer)) {
      forward.advance_exact(layer);
    } else {
      forward.advance_without_attention(layer);
    }
  }
  return forward.observe(model.config.num_hidden_layers);
}

LayerObservation observe_draft(DraftModel& model,
                               const std::vector<std::span<const TokenId>>& samples,
                               const ObservationRequest& request = {}, int64_t batch_tokens = 0) {
  SilentDiagnostics silent;
  LayerwiseForward forward(model.config, model.weights, *model.backend, samples,
                           {.batch_tokens = batch_tokens, .observation = request}, silent);
  return observe_draft(model, forward, request);
}

double largest_error(const KvObservation& seen, const Json& expected, const char* key) {
  double worst = 0.0;
  const Json& heads = expected.at(key);
  REQUIRE(seen.ranges.size() == heads.size());
  for (size_t head = 0; head < heads.size(); ++head) {
    const ObservedRange& range = seen.ranges[head];
    const double amax = std::max(std::fabs(range.min), std::fabs(range.max));
    worst = std::max(worst, test::relative_error(amax, heads[head].get<double>()));
  }
  return worst;
}

double largest_error(const LayerObservation& seen, const Json& expected) {
  double worst = std::max(largest_error(seen.k, expected, "k_head_amax"),
                          largest_error(seen.v, expected, "v_head_amax"));
  const auto least = [](const KvObservation& side) {
    return std::ranges::min(side.ranges, {}, &ObservedRange::min).min;
  };
  const auto most = [](const KvObservation& side) {
    return std::ranges::max(side.ranges, {}, &ObservedRange::max).max;
  };
  const std::pair<const char*, float> ends[] = {{"k_min", least(seen.k)},
                                                {"k_max", most(seen.k)},
                                                {"v_min", least(seen.v)},
                                                {"v_max", most(seen.v)}};
  for (const auto& [key, found] : ends)
    worst = std::max(worst, test::relative_error(found, expected.at(key).get<double>()));
  return worst;
}

uint64_t count_of(const KvObservation& side) {
  uint64_t count = 0;
  for (const MagnitudeHistogram& histogram : side.histograms)
    for (const uint64_t bin : histogram.counts) count += bin;
  return count;
}

}  // namespace

TEST_CASE("draft: K and V are those of transformers' layer fed as vLLM feeds it") {
  for (const std::string& name : kDrafts)
    for (const std::string& backend : test::backend_names()) {
      INFO(name << " on " << backend);
      DraftModel model(name, backend);
      REQUIRE(model.config.has_draft());
      const LayerObservation seen = observe_draft(model, {model.ids});
      CHECK(largest_error(seen, model.expected["draft"]) <= test::kFloat32Tolerance);
      // All tokens but the last.
      const LayerCache& cache = model.config.cache(model.config.num_hidden_layers);
      CHECK(count_of(seen.k) ==
            (model.ids.size() - 1) * static_cast<uint64_t>(cache.heads * cache.k_dim));
    }
}

TEST_CASE("draft: where vLLM masks the first embedding it shows, and other rows are as without") {
  for (const std::string& name : kDrafts) {
    INFO(name);
    DraftModel model(name);
    const bool masks = model.config.architecture->masks_first_draft;
    CHECK(model.expected.contains("from_zero") == masks);
    if (!masks) continue;
    const KvObservation first = observe_draft(model, {std::span(model.ids).first(2)}).k;
    Architecture other = *model.config.architecture;
    other.masks_first_draft = false;
    model.config.architecture = &other;
    CHECK(largest_error(observe_draft(model, {model.ids}), model.expected["from_zero"]) <=
          test::kFloat32Tolerance);
    const KvObservation kept = observe_draft(model, {std::span(model.ids).first(2)}).k;
    CHECK(std::fabs(first.ranges[0].max - kept.ranges[0].max) > 1e-3f);
  }
}

TEST_CASE("draft: samples of any length, batches, devices and Linears beside change nothing") {
  for (const std::string& name : kDrafts) {
    INFO(name);
    DraftModel model(name);
    const auto ids = std::span<const TokenId>(model.ids);
    const std::vector<std::span<const TokenId>> samples{ids.first(9), ids.first(1), ids,
                                                        ids.first(1), ids.first(5)};
    const auto heads =
        static_cast<size_t>(model.config.cache(model.config.num_hidden_layers).heads);
    const LayerObservation all = observe_draft(model, samples);
    for (size_t sample = 0; sample < samples.size(); ++sample) {
      const LayerObservation alone = observe_draft(model, {samples[sample]});
      CHECK(std::memcmp(&all.k.ranges[sample * heads], alone.k.ranges.data(),
                        heads * sizeof(ObservedRange)) == 0);
    }
    CHECK(Range{all.k.ranges[heads].min, all.k.ranges[heads].max}.empty());
    const auto bytes_of = [](LayerObservation seen) {
      seen.q.reset();
      seen.channels.reset();
      test::SeenBytes bytes;
      bytes.add(seen);
      return bytes.bytes();
    };
    // Batches of one sample: two of them have no token that runs.
    CHECK(bytes_of(observe_draft(model, samples, {}, 1)) == bytes_of(all));
    const LayerObservation beside = observe_draft(model, samples, test::kObserveAll);
    CHECK(bytes_of(beside) == bytes_of(all));
    CHECK(beside.q.has_value());
    const auto other = test::make_backend("cpu", 1);
    Backend* devices[] = {model.backend.get(), other.get()};
    SilentDiagnostics silent;
    DividedForward divided(model.config, model.weights, devices, samples, {}, silent);
    CHECK(bytes_of(observe_draft(model, divided)) == bytes_of(all));
  }
}

TEST_CASE("draft: the model before it is what it is without") {
  for (const std::string& name : kDrafts) {
    INFO(name);
    DraftModel model(name);
    const ModelConfig plain = read_model_config(model.model_dir);
    CHECK_FALSE(plain.has_draft());
    const Weights weights(model.model_dir, plain);
    const auto head_of = [&](const ModelConfig& config, const Weights& of) {
      const std::vector<std::span<const TokenId>> samples{model.ids};
      SilentDiagnostics silent;
      LayerwiseForward forward(config, of, *model.backend, samples, {}, silent);
      forward.request({.head = true});
      for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        if (config.has_attention(layer)) {
          forward.advance_exact(layer);
        } else {
          forward.advance_without_attention(layer);
        }
      }
      if (config.has_draft()) forward.observe(config.num_hidden_layers);
      test::SeenBytes bytes;
      bytes.add(forward.observe_head());
      return bytes.bytes();
    };
    CHECK(head_of(plain, weights) == head_of(model.config, model.weights));
  }
}

TEST_CASE("draft: announced layers that are missing or incomplete are left out with a warning") {
  struct Warnings : SilentDiagnostics {
    void warn(const std::string& message) override { texts.push_back(message); }
    std::vector<std::string> texts;
  };
  for (const std::string name : {"glm4_moe", "deepseek_v3", "qwen3_5"}) {
    INFO(name);
    const ModelDir model_dir(test::model_fixture(name));
    ModelConfig config = read_model_config(model_dir);
    Warnings warnings;
    find_draft_layer(model_dir, config, warnings);
    CHECK_FALSE(config.has_draft());
    REQUIRE(warnings.texts.size() == 1);
    CHECK(warnings.texts[0].find("the layer gets no scales") != std::string::npos);
  }
  for (const std::string name : {"llama", "qwen3_next", "glm4_moe_lite"}) {
    INFO(name);
    const ModelDir model_dir(test::model_fixture(name));
    ModelConfig config = read_model_config(model_dir);
    Warnings warnings;
    find_draft_layer(model_dir, config, warnings);
    CHECK_FALSE(config.has_draft());
  }
}
