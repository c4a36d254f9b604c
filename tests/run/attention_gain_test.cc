#include "run/smooth_checkpoint.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

/// One head whose softmax weights have this mean KL with both scales.
AttentionDamage damage_of(double calibrated, double unit) {
  return {.calibrated = {{.error = 1, .output = 4, .kl = 2 * calibrated, .queries = 2}},
          .unit = {{.error = 1, .output = 4, .kl = 2 * unit, .queries = 2}}};
}

}  // namespace

TEST_CASE("attention_gain: layers whose weights lose no less gain nothing") {
  const CacheAttention before{.layers = {{0, damage_of(0.3, 0.1)},
                                         {1, damage_of(0.02, 0.02)},
                                         {2, damage_of(0.01, 0.01)},
                                         {3, damage_of(0.5, 0.5)}}};
  const CacheAttention after{.layers = {{0, damage_of(0.01, 0.11)},
                                        {1, damage_of(0.02, 0.02)},
                                        {2, damage_of(0.005, 0.02)}}};
  const std::vector<int64_t> layers{0, 1, 2, 3};
  // Layer 0 gains by the sum of both, layer 1 stays, 2 loses, and nothing is known of 3.
  CHECK(layers_without_gain(layers, before, after) == std::vector<int64_t>{1, 2});
  CHECK(to_json(weights_kl(before.layers.at(0))) == Json{{"calibrated", 0.3}, {"unit", 0.1}});
}
