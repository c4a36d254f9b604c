#include "quant/late_positions.h"

#include <cmath>

#include "quant/observations.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// A layer whose K and V are 1 everywhere, and last in the last bucket of `tokens` positions.
AttentionCalibration layer_of(int64_t layer, int64_t tokens, float last_k, float last_v) {
  AttentionCalibration one;
  one.layer = layer;
  for (auto* side : {&one.k, &one.v}) {
    auto& amax = side->position_amax;
    amax.assign(position_bucket(tokens - 1) + 1, Amax{1.0f});
    amax.back().value = side == &one.k ? last_k : last_v;
  }
  return one;
}

}  // namespace

TEST_CASE("late positions: layers that grow by more than half a code in the last quarter") {
  const std::vector<AttentionCalibration> layers{
      layer_of(0, 512, 1.0f, 1.0f), layer_of(3, 512, 1.07f, 1.0f), layer_of(5, 512, 0.5f, 1.06f),
      layer_of(7, 512, 4.0f, 1.5f)};
  const auto late = late_positions(layers, 512, 8192);
  REQUIRE(late);
  CHECK(late->k_layers == std::vector<int64_t>{3, 7});
  CHECK(late->v_layers == std::vector<int64_t>{7});
  CHECK(late->first == 384);
  CHECK(late->advised == 1024);
  CHECK(late_positions_text(*late) ==
        "K of layers 3, 7 and V of layer 7 are still largest at the last positions, from 384 "
        "on: choose samples of 1024 tokens or more");
  CHECK(late_positions(layers, 512, 700)->advised == 700);
  CHECK(late_positions(layers, 512, 0)->advised == 1024);
}

TEST_CASE("late positions: no word where nothing is late, or nothing can be done") {
  CHECK(!late_positions(std::vector{layer_of(0, 512, 1.0f, 1.06f)}, 512, 8192));
  CHECK(!late_positions(std::vector{layer_of(0, 512, 2.0f, 2.0f)}, 512, 512));  // all the model has
  CHECK(!late_positions(std::vector{layer_of(0, 32, 2.0f, 2.0f)}, 32, 8192));   // too short to say
  CHECK(!late_positions(std::vector{AttentionCalibration{}}, 512, 8192));       // not known
  CHECK(!late_positions(std::vector{layer_of(0, 512, 2.0f, 2.0f)}, 0, 8192));
  std::vector ignored{layer_of(0, 512, 2.0f, 2.0f)};
  ignored[0].ignored = true;
  CHECK(!late_positions(ignored, 512, 8192));
}

TEST_CASE("late positions: of samples of any length, the last quarter begins where a bucket does") {
  for (int64_t length = 64; length <= 5000; ++length) {
    const auto late = late_positions(std::vector{layer_of(0, length, 2.0f, 1.0f)}, length, 0);
    INFO(length);
    REQUIRE(late);
    CHECK(first_position(position_bucket(late->first)) == late->first);
    CHECK(late->first < length);
    const double part = static_cast<double>(late->first) / static_cast<double>(length);
    CHECK(std::abs(part - 0.75) < 0.16);
    CHECK(late->advised == 2 * length);
  }
}
