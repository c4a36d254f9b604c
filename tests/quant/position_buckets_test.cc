#include "quant/observations.h"

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("position buckets: every position lies in its own, and buckets are halves of octaves") {
  for (int64_t position = 0; position < 20'000; ++position) {
    const size_t bucket = position_bucket(position);
    INFO(position);
    REQUIRE(first_position(bucket) <= position);
    REQUIRE(position < first_position(bucket + 1));
  }
  for (const int64_t octave : {4, 8, 512, 8192, 1 << 30}) {
    const size_t bucket = position_bucket(octave);
    CHECK(first_position(bucket) == octave);
    CHECK(first_position(bucket + 1) == octave + octave / 2);
    CHECK(first_position(bucket + 2) == 2 * octave);
  }
  CHECK(position_bucket(INT32_MAX) < kMostPositionBuckets);
}
