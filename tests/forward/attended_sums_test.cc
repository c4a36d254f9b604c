#include "forward/attended_sums.h"

#include <algorithm>

#include "forward/support/one_layer.h"
#include "support/every_backend.h"
#include "support/model_fixture.h"
#include "support/near.h"

namespace kvcal {
namespace {

using Floats = test::OnBackend<float>;

constexpr int64_t kRows = 3, kLayers = 5, kBlock = 2, kStreams = 4;

/// A small model whose layers attend over the sums of blocks of two layers.
ModelConfig attending_config() {
  ModelConfig config = test::ModelFixture("llama").config;
  config.num_hidden_layers = kLayers;
  config.residual_block = kBlock;
  config.attends_residuals = true;
  config.streams = kStreams;
  return config;
}

/// One layer on a batch of kRows rows, whose scores are zeros: it reads the mean of the sums.
struct Attending : test::OneLayer {
  Attending(int64_t index, Backend& own) : OneLayer(attending_config(), index, kRows, own) {
    const auto zeros = [&] {
      return PackedValues(std::vector<float>(static_cast<size_t>(config.hidden_size), 0.0f),
                          backend);
    };
    layer.attention_scores = zeros();
    layer.mlp_scores = zeros();
    if (index + 1 == kLayers) layer.final_scores = zeros();
  }
  /// Planes that hold 1, 10, 100, 1000.
  std::vector<float> planes() const {
    std::vector<float> all;
    for (const float value : {1.0f, 10.0f, 100.0f, 1000.0f})
      all.insert(all.end(), static_cast<size_t>(plane()), value);
    return all;
  }
};

/// What a layer reads before attention and before the MLP, and the planes behind it. Attention adds
/// 0.25 to the sum, the MLP 0.5.
struct Seen {
  float attention = 0.0f, mlp = 0.0f;
  std::vector<float> planes;
};
Seen run_layer(int64_t index, Backend& backend) {
  Attending attending(index, backend);
  const Floats hidden(backend, attending.planes());
  const auto first = [&](const float* x) { return downloaded(backend, x, 1).at(0); };
  const auto add = [&](float value) {
    const Floats added(backend, std::vector<float>(static_cast<size_t>(attending.plane()), value));
    backend.add({.x = added.data(), .count = attending.plane(), .out = hidden.data()});
  };
  AttendedSums sums(attending.context);
  Seen seen;
  seen.attention = first(sums.attend_before_attention(hidden.data()));
  sums.begin_layer(hidden.data());
  add(0.25f);
  seen.mlp = first(sums.attend_before_mlp(hidden.data()));
  add(0.5f);
  sums.end_layer(hidden.data());
  const std::vector<float> all = hidden.values();
  for (int64_t i = 0; i < kStreams; ++i)
    seen.planes.push_back(all.at(static_cast<size_t>(i * attending.plane())));
  return seen;
}

void check_near(float found, float expected) {
  CHECK(std::fabs(found - expected) <= 1e-4f * std::fabs(expected));
}

TEST_CASE("attended sums: the first layer of a block puts the sum so far behind the others") {
  test::for_every_backend([](Backend& backend) {
    const Seen seen = run_layer(2, backend);
    check_near(seen.attention, (1.0f + 10.0f) / 2);
    check_near(seen.mlp, (0.25f + 10.0f + 1.0f) / 3);
    CHECK(seen.planes == std::vector<float>{0.75f, 10.0f, 1.0f, 1000.0f});
  });
}

TEST_CASE("attended sums: a later layer of a block adds to its sum") {
  test::for_every_backend([](Backend& backend) {
    const Seen seen = run_layer(3, backend);
    check_near(seen.attention, (1.0f + 10.0f + 100.0f) / 3);
    check_near(seen.mlp, (1.25f + 10.0f + 100.0f) / 3);
    CHECK(seen.planes == std::vector<float>{1.75f, 10.0f, 100.0f, 1000.0f});
  });
}

TEST_CASE("attended sums: layer 0 finds the embedding alone and clears what it does not make") {
  test::for_every_backend([](Backend& backend) {
    const Seen seen = run_layer(0, backend);
    CHECK(seen.attention == 1.0f);
    check_near(seen.mlp, (0.25f + 1.0f) / 2);
    CHECK(seen.planes == std::vector<float>{0.75f, 1.0f, 0.0f, 0.0f});
  });
}

TEST_CASE("attended sums: the last layer leaves what the final norm reads in the first plane") {
  test::for_every_backend([](Backend& backend) {
    const Seen seen = run_layer(4, backend);
    check_near(seen.attention, (1.0f + 10.0f + 100.0f) / 3);
    check_near(seen.planes.at(0), (0.75f + 10.0f + 100.0f + 1.0f) / 4);
  });
}

}  // namespace
}  // namespace kvcal
