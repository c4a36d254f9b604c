#include "forward/layer_forward.h"

#include <limits>

#include "forward/support/forward_run.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::SeenBytes;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

KvObservation side(size_t samples, size_t heads, float seed) {
  KvObservation one;
  for (size_t i = 0; i < samples * heads; ++i)
    one.ranges.push_back({.min = -seed - static_cast<float>(i),
                          .max = seed * static_cast<float>(i),
                          .first_nonfinite = i == 1 ? 7 : -1});
  one.ranges.back() = {.min = kInfinity, .max = -kInfinity, .first_nonfinite = 0};
  one.positions = {{-seed, seed}, {}, {0.0f, 3.0f * seed}};
  one.kinds = {{-seed, seed}, {}};
  one.histograms.resize(heads);
  for (size_t head = 0; head < heads; ++head) {
    one.histograms[head].counts[head] = 1;
    one.histograms[head].counts[MagnitudeHistogram::kBins - 1 - head] = ~uint64_t{0} / 3;
  }
  return one;
}

LinearObservation linear(Role role, int64_t index, size_t samples) {
  LinearObservation one{
      .role = role, .index = index, .amax = Amax{2.5f}, .nonfinite = 3, .tokens = 1234567890123};
  one.ranges.assign(samples, {.min = -2.5f, .max = 1.0f, .first_nonfinite = -1});
  if (samples > 0) one.histogram.counts[100] = 17;
  return one;
}

LayerObservation full_layer() {
  LayerObservation seen{.k = side(3, 2, 0.5f), .v = side(3, 2, 4.0f)};
  seen.q = side(3, 8, 1.5f);
  seen.channels = {.k = {0.5f, 0.0f, 3.0f}, .v = {1.0f}};
  seen.key_rows = {{.before = {1.0f, -2.0f}, .cached = {-1.0f, 2.0f}},
                   {.before = {}, .cached = {}},
                   {.before = {3.0f}, .cached = {4.0f}}};
  seen.linears = {linear(Role::kQuery, 0, 3), linear(Role::kExpertUp, 0, 3),
                  linear(Role::kExpertUp, 5, 3)};
  return seen;
}

/// Of three samples, two candidates and four heads.
AttentionComparison comparison() {
  AttentionComparison all;
  all.samples.assign(3, std::vector(2, std::vector<AttentionError>(4)));
  double value = 0.25;
  for (auto& candidates : all.samples)
    for (auto& errors : candidates)
      for (AttentionError& error : errors)
        error = {.error = value++, .output = value++, .kl = value++, .queries = 8};
  return all;
}

template <class Value>
std::string seen_bytes(const Value& value) {
  SeenBytes seen;
  seen.add(value);
  return seen.bytes();
}

template <class Result, LayerPass kPass>
Result result_from(std::span<const std::byte> bytes) {
  return std::get<Result>(layer_result_from(kPass, bytes));
}
constexpr auto layer_observation_from = result_from<LayerObservation, LayerPass::kObserve>;
constexpr auto layer_advance_from = result_from<LayerAdvance, LayerPass::kAdvance>;
constexpr auto linear_observation_from = result_from<LinearObservation, LayerPass::kObserveHead>;
constexpr auto saturation_from = result_from<SaturationCounts, LayerPass::kCountSaturated>;
constexpr auto attention_comparison_from =
    result_from<AttentionComparison, LayerPass::kCompareAttention>;

template <class Read>
std::string error_of(std::span<const std::byte> bytes, const Read& read) {
  try {
    read(bytes);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

/// Bytes in which the byte at offset is another.
std::vector<std::byte> changed(std::vector<std::byte> bytes, size_t offset, unsigned value) {
  bytes.at(offset) = static_cast<std::byte>(value);
  return bytes;
}

}  // namespace

TEST_CASE("observations: rows of K come back, and two sides of other lengths are refused") {
  LayerObservation layer = full_layer();
  const LayerObservation found = layer_observation_from(to_bytes(layer));
  REQUIRE(found.key_rows.size() == 3);
  CHECK(found.key_rows[0].before == std::vector<float>{1.0f, -2.0f});
  CHECK(found.key_rows[0].cached == std::vector<float>{-1.0f, 2.0f});
  CHECK(found.key_rows[1].before.empty());
  CHECK(found.key_rows[2].cached == std::vector<float>{4.0f});
  layer.key_rows[2].cached.clear();
  const std::string message = error_of(to_bytes(layer), layer_observation_from);
  CHECK(message.find("1 numbers of K without RoPE and 0 with it") != std::string::npos);
}

TEST_CASE("observations come back from their bytes as they were") {
  const LayerObservation layer = full_layer();
  CHECK(seen_bytes(layer_observation_from(to_bytes(layer))) == seen_bytes(layer));
  const LayerObservation back = layer_observation_from(to_bytes(layer));
  CHECK(to_bytes(back) == to_bytes(layer));
  CHECK(back.q.has_value());
  CHECK(back.k.ranges[1].first_nonfinite == 7);

  LayerObservation without = full_layer();
  without.q.reset();
  CHECK(!layer_observation_from(to_bytes(without)).q.has_value());
  const LayerObservation nothing = layer_observation_from(to_bytes(LayerObservation{}));
  CHECK(nothing.k.ranges.empty());
  CHECK(nothing.linears.empty());

  const LayerAdvance advance{.saturated = {.k = 1, .v = ~uint64_t{0}, .q = 3},
                             .linears = {linear(Role::kDown, 0, 0)}};
  CHECK(seen_bytes(layer_advance_from(to_bytes(advance))) == seen_bytes(advance));
  const LinearObservation head = linear(Role::kLmHead, 0, 9);
  CHECK(seen_bytes(linear_observation_from(to_bytes(head))) == seen_bytes(head));
  const SaturationCounts counts{.k = 4, .v = 5, .q = 6};
  CHECK(seen_bytes(saturation_from(to_bytes(counts))) == seen_bytes(counts));
  const AttentionComparison compared = comparison();
  const AttentionComparison read = attention_comparison_from(to_bytes(compared));
  CHECK(to_bytes(read) == to_bytes(compared));
  CHECK(read.samples[2][1][3].kl == compared.samples[2][1][3].kl);
  CHECK(attention_comparison_from(to_bytes(AttentionComparison{})).samples.empty());
}

TEST_CASE("what a fixture's layers show comes back from its bytes") {
  for (const std::string name : {"llama", "mixtral", "nemotron_h"}) {
    test::ModelFixture fixture(name);
    const test::FixtureSamples samples(fixture);
    SilentDiagnostics silent;
    LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(), {},
                             silent);
    forward.request(test::kObserveAll);
    size_t linears = 0;
    for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
      INFO(name << " layer " << layer);
      if (!fixture.config.has_attention(layer)) {
        const LayerAdvance advance = forward.advance_without_attention(layer);
        CHECK(seen_bytes(layer_advance_from(to_bytes(advance))) == seen_bytes(advance));
        continue;
      }
      const LayerObservation seen = forward.observe_and_advance_exact(layer);
      linears += seen.linears.size();
      CHECK(seen_bytes(layer_observation_from(to_bytes(seen))) == seen_bytes(seen));
    }
    CHECK(linears > 0);
  }
}

TEST_CASE("bytes of an observation that end early or go on are refused") {
  const auto bytes = to_bytes(full_layer());
  for (size_t size = 0; size < bytes.size(); ++size)
    REQUIRE(error_of(std::span(bytes).first(size), layer_observation_from) != "");
  auto more = bytes;
  more.push_back(std::byte{0});
  CHECK(error_of(more, layer_observation_from) ==
        "observation: has 1 bytes behind its end at offset " + std::to_string(bytes.size()));
  CHECK(error_of(bytes, layer_advance_from).find("kind 1, expected") != std::string::npos);
  CHECK(error_of(changed(bytes, 4, 9), layer_observation_from).find("version 9") !=
        std::string::npos);
  // A count that would ask for all memory.
  auto large = to_bytes(LayerObservation{});
  for (size_t at = 8; at < 16; ++at) large[at] = std::byte{0x7f};
  CHECK(error_of(large, layer_observation_from).find("bytes follow") != std::string::npos);
}

TEST_CASE("no changed byte of an observation is taken for something a pass cannot see") {
  const auto bytes = to_bytes(full_layer());
  size_t refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const unsigned value : {0x00u, 0x01u, 0x7fu, 0x80u, 0xffu}) {
      const auto other = changed(bytes, at, value);
      if (other == bytes) continue;
      // Either refused with an Error, or a value whose bytes are these.
      std::vector<std::byte> again;
      const std::string error = error_of(other, [&](std::span<const std::byte> from) {
        again = to_bytes(layer_observation_from(from));
      });
      if (error.empty()) REQUIRE(again == other);
      if (!error.empty()) ++refused;
    }
  CHECK(refused > 1000);
}

TEST_CASE("a comparison of attention that ends early, goes on or was changed is refused") {
  const auto bytes = to_bytes(comparison());
  for (size_t size = 0; size < bytes.size(); ++size)
    REQUIRE(error_of(std::span(bytes).first(size), attention_comparison_from) != "");
  CHECK(error_of(changed(bytes, 8, 2), attention_comparison_from) ==
        "observation: has 24 attention errors, expected those of 2 samples, 2 candidates and 4 "
        "heads");
  const auto none = to_bytes(AttentionComparison{});
  CHECK(error_of(changed(none, 8, 3), attention_comparison_from) ==
        "observation: has 0 attention errors, expected those of 3 samples, 0 candidates and 0 "
        "heads");
  auto large = bytes;
  for (size_t at = 8; at < 24; ++at) large[at] = std::byte{0x7f};
  CHECK(error_of(large, attention_comparison_from).find("overflows") != std::string::npos);
}

TEST_CASE("impossible values in the bytes of an observation are refused") {
  const auto refused = [](const LayerObservation& seen) {
    return error_of(to_bytes(seen), layer_observation_from);
  };
  CHECK(refused(full_layer()) == "");
  LayerObservation seen = full_layer();
  seen.k.ranges[0].min = std::numeric_limits<float>::quiet_NaN();
  CHECK(refused(seen).find("expected finite extremes or none") != std::string::npos);
  seen = full_layer();
  seen.v.ranges[0] = {.min = 2.0f, .max = 1.0f, .first_nonfinite = -1};
  CHECK(refused(seen).find("expected finite extremes or none") != std::string::npos);
  seen = full_layer();
  seen.k.ranges.pop_back();
  CHECK(refused(seen).find("expected one of each head in each sample") != std::string::npos);
  seen = full_layer();
  seen.v = side(2, 2, 1.0f);
  CHECK(refused(seen).find("expected the same") != std::string::npos);
  seen = full_layer();
  std::swap(seen.linears[0], seen.linears[1]);
  CHECK(refused(seen).find("comes after") != std::string::npos);
  seen = full_layer();
  seen.linears[2].index = 0;
  CHECK(refused(seen).find("comes after") != std::string::npos);
  seen = full_layer();
  seen.linears[0].amax.value = -1.0f;
  CHECK(refused(seen).find("expected a role of this version") != std::string::npos);
  seen = full_layer();
  seen.k.histograms[0].counts.fill(~uint64_t{0});
  CHECK(refused(seen).find("overflows") != std::string::npos);
}
