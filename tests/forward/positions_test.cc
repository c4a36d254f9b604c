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
  const Segment samples[] = {{.q_begin = 0, .q_count = 9, .kv_begin = 0, .kv_count = 9},
                             {.q_begin = 9, .q_count = 0, .kv_begin = 9, .kv_count = 0},
                             {.q_begin = 9, .q_count = 5, .kv_begin = 9, .kv_count = 5}};
  pieces.add_batch(samples);
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
