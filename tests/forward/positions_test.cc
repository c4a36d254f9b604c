#include "forward/layer_observers.h"

#include <algorithm>

#include "forward/support/family_check.h"
#include "forward/support/forward_run.h"
#include "quant/observations.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

/// Extremes of layer 0's K and V, of samples cut to so many tokens.
LayerObservation observe(ModelFixture& fixture, const FixtureSamples& samples, int64_t tokens) {
  std::vector<std::span<const TokenId>> cut;
  for (const auto& sample : samples.spans())
    cut.push_back(sample.first(std::min(sample.size(), static_cast<size_t>(tokens))));
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, cut,
                           {.batch_tokens = 40}, silent);
  return forward.observe(0);
}

Range folded(const std::vector<ObservedRange>& ranges) {
  Range all;
  for (const ObservedRange& range : ranges) all.fold({range.min, range.max});
  return all;
}

}  // namespace

TEST_CASE("positions: buckets up to one hold the extremes of samples that end with it") {
  for (const std::string& backend : test::backend_names()) {
    INFO(backend);
    ModelFixture fixture("llama", backend);
    const FixtureSamples samples(fixture);
    size_t longest = 0;
    for (const auto& sample : samples.spans()) longest = std::max(longest, sample.size());
    REQUIRE(longest > 12);
    const LayerObservation seen = observe(fixture, samples, static_cast<int64_t>(longest));
    const size_t buckets = position_bucket(static_cast<int64_t>(longest) - 1) + 1;
    for (KvObservation LayerObservation::*side : {&LayerObservation::k, &LayerObservation::v}) {
      REQUIRE((seen.*side).positions.size() == buckets);
      Range so_far;
      for (size_t bucket = 0; bucket < buckets; ++bucket) {
        so_far.fold((seen.*side).positions[bucket]);
        const Range cut =
            folded((observe(fixture, samples, first_position(bucket + 1)).*side).ranges);
        CHECK(so_far.min == cut.min);
        CHECK(so_far.max == cut.max);
      }
    }
  }
}

TEST_CASE("positions: a value that is not finite keeps its token, whatever its piece") {
  PositionPieces pieces;
  TokenBatch batch;
  batch.segments = {{.q_begin = 0, .q_count = 9, .kv_begin = 0, .kv_count = 9},
                    {.q_begin = 9, .q_count = 0, .kv_begin = 9, .kv_count = 0},
                    {.q_begin = 9, .q_count = 5, .kv_begin = 9, .kv_count = 5}};
  pieces.add_batch(batch);
  REQUIRE(pieces.segments(0).size() == 7 + 5);
  std::vector<ObservedRange> ranges(pieces.count(), {.min = -1.0f, .max = 1.0f});
  ranges[5].first_nonfinite = 1;  // token 7 of the first sample
  ranges[6].first_nonfinite = 0;
  ranges[10].max = 8.0f;
  KvObservation seen;
  pieces.fold(ranges, 1, seen);
  REQUIRE(seen.ranges.size() == 3);
  CHECK(seen.ranges[0].first_nonfinite == 7);
  CHECK(seen.ranges[1].min > seen.ranges[1].max);
  CHECK(seen.ranges[2].first_nonfinite == -1);
  CHECK(seen.ranges[2].max == 8.0f);
  CHECK(seen.positions[3].max == 8.0f);
  CHECK(seen.positions.size() == 7);
}

TEST_CASE("positions: pieces end where images begin and end, and their extremes are apart") {
  EmbeddedTokens images;
  images.positions = {1, 2, 5};
  images.images = {1, 1, 2};
  TokenBatch batch;
  batch.segments = {{.q_begin = 0, .q_count = 7, .kv_begin = 0, .kv_count = 7}};
  batch.embedded = {&images};
  PositionPieces pieces;
  pieces.add_batch(batch);
  // Text 0; image 1, 2 (a bucket each); text 3 and 4; image 5; text 6.
  const std::vector<int64_t> begins{0, 1, 2, 3, 4, 5, 6};
  REQUIRE(pieces.count() == begins.size());
  std::vector<ObservedRange> ranges;
  for (const int64_t begin : begins) {
    CHECK(pieces.segments(0)[static_cast<size_t>(begin)].q_begin == begin);
    ranges.push_back({.min = 0.0f, .max = static_cast<float>(begin)});
  }
  KvObservation seen;
  pieces.fold(ranges, 1, seen);
  REQUIRE(seen.kinds.size() == 2);
  CHECK(seen.kinds[0].max == 6.0f);
  CHECK(seen.kinds[1].max == 5.0f);
  CHECK(seen.positions[4].max == 5.0f);  // text 4 and image 5 share a bucket
}
