#include "rewrite/smoothing.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/model_dir.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/rewritten_model.h"

using namespace kvcal;
using test::contains;
using test::distance;
using test::is_quantized;
using test::logits_of;
using test::message_of;
using test::model_fixture;
using test::ModelFixture;
using test::ScratchFolder;

namespace {

float most(const std::vector<float>& values) {
  return values.empty() ? 0.0f : std::ranges::max(values);
}

/// Channels of each layer; those of each head reach as far as the head, which is observed apart.
std::vector<ChannelAmax> channels_of(const fs::path& folder) {
  ModelFixture fixture(folder);
  const std::vector<std::span<const TokenId>> samples{fixture.ids};
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples, {}, silent);
  forward.request({.channels = true});
  std::vector<ChannelAmax> all(static_cast<size_t>(fixture.config.num_hidden_layers));
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    if (!fixture.config.has_attention(layer)) {
      forward.advance_without_attention(layer);
      continue;
    }
    const LayerObservation seen = layer == fixture.config.last_attention_layer()
                                      ? forward.observe(layer)
                                      : forward.observe_and_advance_exact(layer);
    REQUIRE(seen.channels.has_value() == fixture.config.has_own_cache(layer));
    if (!seen.channels) continue;
    const auto check_heads = [&](const std::vector<float>& channels, const KvObservation& heads) {
      const size_t width = channels.size() / heads.histograms.size();
      for (size_t head = 0; head < heads.histograms.size(); ++head) {
        float reach = 0.0f;
        for (size_t i = 0; i < width; ++i) reach = std::max(reach, channels[head * width + i]);
        const ObservedRange& range = heads.ranges[head];
        CHECK(reach == std::max(std::fabs(range.min), std::fabs(range.max)));
      }
    };
    check_heads(seen.channels->k, seen.k);
    check_heads(seen.channels->v, seen.v);
    all[static_cast<size_t>(layer)] = {.k = seen.channels->k, .v = seen.channels->v};
  }
  return all;
}

struct Smoothed {
  explicit Smoothed(const fs::path& source) : before(channels_of(source)) {
    const ModelDir model(source);
    const ModelConfig config = read_model_config(model);
    smoothing = smoothing_of(config, before);
    ThreadPool pool(2);
    made = write_rewritten_checkpoint(model, config, smoothing.factors, pool, folder.path());
    fs::copy_file(source / "expected.json", folder.path() / "expected.json",
                  fs::copy_options::skip_existing);
  }
  std::vector<ChannelAmax> before;
  Smoothing smoothing;
  ScratchFolder folder;
  RewrittenCheckpoint made;
};

/// The smallest reach of a unit's largest channel, over the head's; zeros do not count.
double least_reach(const std::vector<float>& channels, int64_t heads, const KeyUnits& units) {
  const size_t width = channels.size() / static_cast<size_t>(heads);
  double least = 1.0;
  for (size_t begin = 0; begin < channels.size(); begin += width) {
    const std::vector<float> head(channels.begin() + static_cast<std::ptrdiff_t>(begin),
                                  channels.begin() + static_cast<std::ptrdiff_t>(begin + width));
    for (const auto& unit : units) {
      float reach = 0.0f;
      for (const int64_t channel : unit)
        reach = std::max(reach, head[static_cast<size_t>(channel)]);
      if (reach > 0.0f) least = std::min(least, double{reach} / double{most(head)});
    }
  }
  return least;
}

KeyUnits units_of(const ModelConfig& config, int64_t layer) {
  const HeadUnits both = key_units(config, layer);
  KeyUnits all = both.turning;
  all.insert(all.end(), both.fixed.begin(), both.fixed.end());
  return all;
}

KeyUnits channels_alone(int64_t width) {
  KeyUnits units;
  for (int64_t i = 0; i < width; ++i) units.push_back({i});
  return units;
}

}  // namespace

TEST_CASE("smoothing: every family's function stays, and its channels become even") {
  // A rounded norm moves a unit a little.
  constexpr double kLeast = 0.5 * 0.999;
  int64_t smoothed = 0, refused = 0;
  for (const std::string& name : test::model_fixture_names()) {
    const fs::path source = model_fixture(name);
    if (is_quantized(source)) continue;
    INFO(name);
    const ModelConfig config = read_model_config(ModelDir(source));
    const bool can_k = !reason_against_key_factors(config);
    const bool can_v = !reason_against_value_factors(config);
    if (!can_k && !can_v) {
      CHECK(contains(message_of([&] { check_can_be_smoothed(config); }),
                     "nothing to smooth: family " + std::string(config.architecture->name)));
      ++refused;
      continue;
    }
    const Smoothed made(source);
    ++smoothed;
    CHECK(made.smoothing.k.has_value() == can_k);
    CHECK(made.smoothing.v.has_value() == can_v);
    CHECK(distance(logits_of(made.folder.path()), logits_of(source)) <= 1e-4);
    const std::vector<ChannelAmax> after = channels_of(made.folder.path());
    for (const int64_t layer : config.cached_layers()) {
      INFO("layer " << layer);
      const ChannelAmax& own = after[static_cast<size_t>(layer)];
      const AttentionSizes& sizes = config.attention(layer);
      if (can_v)
        CHECK(least_reach(own.v, sizes.kv_heads, channels_alone(sizes.value_dim)) > kLeast);
      if (can_k && !shares_key_factors(config, layer))
        CHECK(least_reach(own.k, sizes.kv_heads, units_of(config, layer)) > kLeast);
      const ChannelAmax& before = made.before[static_cast<size_t>(layer)];
      if (can_k) CHECK(most(own.k) <= 1.001f * most(before.k));
      if (can_v) CHECK(most(own.v) <= 1.001f * most(before.v));
    }
  }
  CHECK(smoothed > 100);
  CHECK(refused >= 1);
}

TEST_CASE("smoothing: outliers are gone, and the median says so") {
  ScratchFolder uneven;
  ThreadPool pool(2);
  write_outliers(ModelDir(model_fixture("llama")),
                 {.outliers = parse_outlier_spec("k:pairs=1,factor=1024;v:channels=1,factor=256")},
                 pool, uneven.path());
  fs::copy_file(model_fixture("llama") / "expected.json", uneven.path() / "expected.json",
                fs::copy_options::skip_existing);
  const Smoothed made(uneven.path());
  // The outliers come back, and the other channels do not grow to them.
  const std::vector<ChannelAmax> plain = channels_of(model_fixture("llama"));
  const std::vector<ChannelAmax> after = channels_of(made.folder.path());
  for (size_t layer = 0; layer < plain.size(); ++layer) {
    CHECK(most(after[layer].k) <= 2.0f * most(plain[layer].k));
    CHECK(most(after[layer].v) <= 2.0f * most(plain[layer].v));
  }
  CHECK(made.smoothing.k->before > 3.5);
  CHECK(made.smoothing.k->after < 2.0);
  CHECK(made.smoothing.v->after < 2.0);
  CHECK(made.made.largest_error == 0.0);
  CHECK(logits_of(made.folder.path()) == logits_of(model_fixture("llama")));
}

TEST_CASE("smoothing: channels without a magnitude, or with next to none, are not blown up") {
  const ModelConfig config = read_model_config(ModelDir(model_fixture("llama")));
  std::vector<ChannelAmax> amax(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t layer : config.cached_layers()) {
    const AttentionSizes& sizes = config.attention(layer);
    ChannelAmax& own = amax[static_cast<size_t>(layer)];
    own.k.assign(static_cast<size_t>(sizes.key_width()), 1.0f);
    own.v.assign(static_cast<size_t>(sizes.value_width()), 2.0f);
    own.v[0] = 0.0f;
    own.v[1] = 1e-30f;
    own.v[2] = 0.6f;  // twice it is 1.2, four times more than 2
  }
  const Smoothing smoothing = smoothing_of(config, amax);
  const LayerFactors& own = smoothing.factors.at(0);
  CHECK(own.v[0] == 1.0f);
  CHECK(own.v[1] == std::ldexp(1.0f, 20));
  CHECK(own.v[2] == 2.0f);
  CHECK(own.k.empty());
  CHECK(smoothing.k->before == 1.0);
}

TEST_CASE("smoothing: a side that cannot have factors stays, with its reason") {
  int64_t one_sided = 0;
  for (const std::string& name : test::model_fixture_names()) {
    const ModelConfig config = read_model_config(ModelDir(model_fixture(name)));
    const auto k_reason = reason_against_key_factors(config);
    const auto v_reason = reason_against_value_factors(config);
    if (k_reason.has_value() == v_reason.has_value() || is_quantized(model_fixture(name))) continue;
    INFO(name);
    ++one_sided;
    const Smoothing smoothing = smoothing_of(config, channels_of(model_fixture(name)));
    CHECK(smoothing.k_reason == k_reason.value_or(""));
    CHECK(smoothing.v_reason == v_reason.value_or(""));
    for (const LayerFactors& own : smoothing.factors) CHECK((k_reason ? own.k : own.v).empty());
  }
  CHECK(one_sided > 0);
}
