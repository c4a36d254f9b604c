#include "forward/divided_forward.h"

#include <algorithm>
#include <utility>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;

namespace {

using Linears = std::vector<LinearObservation>;

/// Of so many samples, whose extremes are -amax and amax.
LinearObservation seen(Role role, int64_t index, float amax, uint64_t count, size_t samples) {
  LinearObservation one{.role = role, .index = index, .amax = Amax{amax}};
  one.nonfinite = count;
  one.tokens = 10 * count;
  one.ranges.assign(samples, {.min = -amax, .max = amax, .first_nonfinite = -1});
  one.histogram.counts[7] = count;
  return one;
}

std::pair<Role, int64_t> place(const LinearObservation& one) {
  return {one.role, one.index};
}

/// What two samples and three others give.
LayerAdvance merged_advance(const SampleParts& samples) {
  const auto advance = [](Linears linears) {
    std::ranges::sort(linears, {}, place);
    LayerAdvance one{.linears = std::move(linears)};
    one.saturated = {.k = 1, .v = 2, .q = 3};
    return std::optional<LayerResult>(one);
  };
  return std::get<LayerAdvance>(
      merged({advance({seen(Role::kQuery, 0, 1.0f, 1, 2), seen(Role::kDown, 0, 4.0f, 2, 2)}),
              advance({seen(Role::kQuery, 0, 3.0f, 2, 3), seen(Role::kExpertUp, 5, 2.0f, 4, 3)}),
              std::nullopt},
             samples));
}

const LinearObservation& of(const Linears& linears, Role role) {
  return *std::ranges::find(linears, role, &LinearObservation::role);
}

/// [samples], where a sample that did not reach the input has none.
std::vector<float> maxima(const LinearObservation& one) {
  std::vector<float> all;
  for (const ObservedRange& range : one.ranges)
    all.push_back(range.min <= range.max ? range.max : -1.0f);
  return all;
}

KvObservation side(size_t heads, std::vector<float> amaxes) {
  KvObservation one;
  one.histograms.resize(heads);
  for (auto& histogram : one.histograms) histogram.counts[3] = amaxes.size();
  for (const float amax : amaxes)
    for (size_t head = 0; head < heads; ++head)
      one.ranges.push_back(
          {.min = -amax, .max = amax + static_cast<float>(head), .first_nonfinite = -1});
  // As many buckets of positions as samples, so that parts have different numbers of them.
  for (const float amax : amaxes) one.positions.push_back({-amax, 2.0f * amax});
  // The first sample's tokens are text, the others are images.
  one.kinds.resize(2);
  for (size_t i = 0; i < amaxes.size(); ++i) one.kinds[i == 0 ? 0 : 1].fold({-amaxes[i], 0.0f});
  return one;
}

std::optional<LayerObservation> layer(size_t heads, const std::vector<float>& amaxes) {
  return LayerObservation{.k = side(heads, amaxes), .v = side(heads, amaxes)};
}

}  // namespace

TEST_CASE("merged: Linears by role and expert, ranges in the order of all samples") {
  const std::pair<SampleParts, std::vector<std::vector<float>>> cases[] = {
      {{.samples_of = {{0, 1}, {2, 3, 4}, {}}},
       {{1, 1, 3, 3, 3}, {4, 4, -1, -1, -1}, {-1, -1, 2, 2, 2}}},
      {{.samples_of = {{1, 4}, {0, 2, 3}, {}}},
       {{3, 1, 3, 3, 1}, {-1, 4, -1, -1, 4}, {2, -1, 2, 2, -1}}}};
  for (const auto& [samples, expected] : cases) {
    const LayerAdvance all = merged_advance(samples);
    REQUIRE(all.linears.size() == 3);
    CHECK(std::ranges::is_sorted(all.linears, {}, place));
    CHECK(maxima(of(all.linears, Role::kQuery)) == expected[0]);
    CHECK(maxima(of(all.linears, Role::kDown)) == expected[1]);
    CHECK(maxima(of(all.linears, Role::kExpertUp)) == expected[2]);
    CHECK(of(all.linears, Role::kQuery).amax.value == 3.0f);
    CHECK(of(all.linears, Role::kQuery).nonfinite == 3);
    CHECK(of(all.linears, Role::kQuery).tokens == 30);
    CHECK(of(all.linears, Role::kQuery).histogram.counts[7] == 3);
    CHECK(of(all.linears, Role::kExpertUp).index == 5);
    CHECK(all.saturated.k == 2);
    CHECK(all.saturated.v == 4);
    CHECK(all.saturated.q == 6);
  }
}

TEST_CASE("merged: K and V of samples behind each other are those of one pass") {
  const size_t counts[] = {2, 1};
  std::optional<LayerObservation> parts[] = {layer(2, {1.0f, 5.0f}), layer(2, {3.0f})};
  parts[0]->channels = {.k = {1.0f, 4.0f}, .v = {2.0f}};
  parts[1]->channels = {.k = {3.0f, 2.0f}, .v = {5.0f}};
  parts[0]->key_rows = {{.before = {1.0f}, .cached = {2.0f}}, {.before = {3.0f}, .cached = {4.0f}}};
  parts[1]->key_rows = {{.before = {5.0f}, .cached = {6.0f}}};
  const LayerObservation all = std::get<LayerObservation>(
      merged({parts[0], parts[1]}, SampleParts::behind_each_other(counts)));
  CHECK(all.channels->k == std::vector<float>{3.0f, 4.0f});
  CHECK(all.channels->v == std::vector<float>{5.0f});
  REQUIRE(all.key_rows.size() == 3);
  for (size_t sample = 0; sample < 3; ++sample)
    CHECK(all.key_rows[sample].before.at(0) == static_cast<float>(2 * sample + 1));
  const KvObservation expected = side(2, {1.0f, 5.0f, 3.0f});
  REQUIRE(all.k.ranges.size() == expected.ranges.size());
  for (size_t i = 0; i < expected.ranges.size(); ++i) {
    CHECK(all.k.ranges[i].max == expected.ranges[i].max);
    CHECK(all.v.ranges[i].min == expected.ranges[i].min);
  }
  for (size_t head = 0; head < 2; ++head)
    CHECK(all.k.histograms[head].counts == expected.histograms[head].counts);
  CHECK(!all.q);
  REQUIRE(all.k.positions.size() == 2);
  CHECK(all.k.positions[0].min == -3.0f);
  CHECK(all.k.positions[0].max == 6.0f);
  CHECK(all.k.positions[1].max == 10.0f);
  REQUIRE(all.k.kinds.size() == 2);
}

TEST_CASE("merged: parts that do not fit their samples or each other are named") {
  const SampleParts samples{.samples_of = {{0, 1}, {2}}, .name = "rank"};
  const auto message = [&](std::optional<LayerObservation> first,
                           std::optional<LayerObservation> second) {
    return test::message_of([&] { merged({first, second}, samples); });
  };
  CHECK(message(layer(2, {1, 2}), layer(2, {3})) == "no error");
  CHECK(message(layer(2, {1}), layer(2, {3})) == "rank 0: has 2 ranges, expected 2 samples of 2");
  CHECK(message(layer(2, {1, 2}), layer(1, {3})) == "rank 1: has 1 head, expected 2");
  CHECK(message(layer(2, {1, 2}), std::nullopt) == "rank 1: saw nothing, but has 1 sample");
  auto with_queries = layer(2, {3});
  with_queries->q = side(2, {3});
  CHECK(contains(message(layer(2, {1, 2}), with_queries), "rank 1: has queries where another"));
}
