#include "forward/hyper_connections.h"

#include "forward/support/one_layer.h"
#include "support/every_backend.h"
#include "support/model_fixture.h"
#include "support/near.h"

namespace kvcal {
namespace {

using Floats = test::OnBackend<float>;

constexpr int64_t kRows = 5, kStreams = 3, kLayers = 4;

/// A small model whose streams are connected.
ModelConfig connected_config() {
  ModelConfig config = test::ModelFixture("llama").config;
  config.streams = kStreams;
  config.connections = {.iterations = 100, .epsilon = 1e-6f};
  config.num_hidden_layers = kLayers;
  return config;
}

/// Connections of one layer with random weights, on a batch of kRows rows.
struct Connected : test::OneLayer {
  Connected(int64_t index, Backend& own) : OneLayer(connected_config(), index, kRows, own) {
    layer.attention_connection = connection(5);
    layer.mlp_connection = connection(6);
  }
  PackedConnection connection(uint64_t seed) {
    const int64_t outputs = config.size_of(Dim::kConnections);
    const int64_t inputs = config.size_of(Dim::kStreamsWidth);
    const std::vector<float> weight = test::normal(outputs * inputs, seed, 0.2f);
    const TensorView view{.name = "connection",
                          .dtype = DType::kF32,
                          .shape = Shape{outputs, inputs},
                          .bytes = std::as_bytes(std::span(weight))};
    PackedConnection packed;
    packed.norm = {std::vector<float>(static_cast<size_t>(inputs), 1.0f), backend};
    packed.linear.matrix = backend.pack({&view, 1}, ComputeType::kFloat32);
    packed.scale = {{0.7f, 1.2f, 0.9f}, backend};
    packed.base = {test::normal(outputs, seed + 10), backend};
    return packed;
  }
};

std::vector<float> sums_of(const std::vector<float>& planes, int64_t count) {
  const size_t size = planes.size() / static_cast<size_t>(count);
  std::vector<float> sums(size, 0.0f);
  for (size_t i = 0; i < planes.size(); ++i) sums[i % size] += planes[i];
  return sums;
}

TEST_CASE("hyper-connections: mixed streams keep their sum, as rows and columns sum to 1") {
  test::for_every_backend([](Backend& backend) {
    Connected layer(1, backend);
    const std::vector<float> before = test::normal(kStreams * layer.plane(), 1);
    const Floats hidden(backend, before), out(backend, std::vector<float>(before.size()));
    HyperConnections connections(layer.context);
    connections.enter_attention(hidden.data());
    connections.attention_output();
    connections.leave_attention();
    connections.mlp_output();
    connections.leave_mlp(out.data());
    CHECK(test::largest_error(out.values(), before) > 0.1);
    CHECK(test::largest_error(sums_of(out.values(), kStreams), sums_of(before, kStreams)) <= 1e-4);
  });
}

TEST_CASE("hyper-connections: layer 0 finds the embedding in the first plane alone") {
  test::for_every_backend([](Backend& backend) {
    Connected layer(0, backend);
    std::vector<float> planes = test::normal(kStreams * layer.plane(), 1);
    const auto input = [&] {
      const Floats hidden(backend, planes);
      HyperConnections connections(layer.context);
      return downloaded(backend, connections.enter_attention(hidden.data()), layer.plane());
    };
    const std::vector<float> seen = input();
    for (auto plane = planes.begin() + layer.plane(); plane < planes.end(); plane += layer.plane())
      std::copy_n(planes.begin(), layer.plane(), plane);
    CHECK(input() == seen);
    layer.context.layer_index = 1;
    CHECK(input() == seen);
  });
}

TEST_CASE("hyper-connections: the last layer leaves the mean of the streams in the first plane") {
  test::for_every_backend([](Backend& backend) {
    const auto run = [&](Connected& layer, int64_t index) {
      layer.context.layer_index = index;
      const Floats hidden(backend, test::normal(kStreams * layer.plane(), 1));
      HyperConnections connections(layer.context);
      connections.enter_attention(hidden.data());
      connections.attention_output();
      connections.leave_attention();
      connections.mlp_output();
      connections.leave_mlp(hidden.data());
      return hidden.values();
    };
    Connected layer(3, backend);
    std::vector<float> mean = sums_of(run(layer, 2), kStreams);
    for (float& value : mean) value /= static_cast<float>(kStreams);
    std::vector<float> last = run(layer, 3);
    last.resize(mean.size());
    CHECK(test::largest_error(last, mean) <= 1e-6);
  });
}

}  // namespace
}  // namespace kvcal
