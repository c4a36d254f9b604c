#include "core/file.h"
#include "core/json.h"
#include "support/backends.h"
#include "support/near.h"

// The judge of the other tests is itself judged, by PyTorch: tests/reference/kernels.py.
namespace kvcal {
namespace {

Json cases(const char* operation) {
  const fs::path path = fs::path(KVCAL_TESTS_DIR) / "fixtures/kernels/torch.json";
  return parse_json(read_text(path)).at(operation);
}
std::vector<float> floats(const Json& c, const char* key) {
  return c.at(key).get<std::vector<float>>();
}
int64_t number(const Json& c, const char* key) {
  return required_int(c, key);
}

constexpr double kLimit = 1e-6, kFloor = 0.1;

TEST_CASE("reference: attention is torch's scaled_dot_product_attention") {
  for (const Json& c : cases("attention"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto q = floats(c, "q"), k = floats(c, "k"), v = floats(c, "v");
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      const std::vector<Segment> segments{
          {.q_count = number(c, "q_count"), .kv_count = number(c, "kv_count")}};
      std::vector<float> out(q.size());
      test::make_backend(name)->attention(
          {.q = q.data(),
           .q_row_stride = heads * head_dim,
           .k = k.data(),
           .v = v.data(),
           .segments = segments,
           .heads = heads,
           .kv_heads = number(c, "kv_heads"),
           .head_dim = head_dim,
           .softmax_scale = static_cast<float>(required_number(c, "softmax_scale")),
           .sliding_window = number(c, "sliding_window"),
           .out = out.data()});
      INFO(name);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 1.0));
    }
}

TEST_CASE("reference: rope turns as torch's complex multiplication") {
  for (const Json& c : cases("rope")) {
    auto x = floats(c, "x");
    const auto cosines = floats(c, "cos"), sines = floats(c, "sin");
    const auto positions = c.at("positions").get<std::vector<int32_t>>();
    const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
    test::make_backend("reference")
        ->rope({.x = {.data = x.data(),
                      .tokens = number(c, "tokens"),
                      .heads = heads,
                      .head_dim = head_dim,
                      .row_stride = heads * head_dim},
                .positions = positions.data(),
                .cos = cosines.data(),
                .sin = sines.data(),
                .rotary_dim = number(c, "rotary_dim"),
                .interleaved = c.at("interleaved").get<bool>()});
    CHECK(test::agree_relatively(x, floats(c, "out"), kLimit, kFloor));
  }
}

TEST_CASE("reference: rms_norm is torch's") {
  for (const Json& c : cases("rms_norm")) {
    const auto x = floats(c, "x"), weight = floats(c, "weight");
    std::vector<float> out(x.size());
    test::make_backend("reference")
        ->rms_norm({.x = x.data(),
                    .weight = weight.data(),
                    .epsilon = static_cast<float>(required_number(c, "epsilon")),
                    .rows = number(c, "rows"),
                    .width = number(c, "width"),
                    .out = out.data()});
    CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, kFloor));
  }
}

TEST_CASE("reference: gated activations are torch's") {
  const Activation activations[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh};
  const Json all = cases("gated_activation");
  REQUIRE(all.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const auto gate_up = floats(all[i], "gate_up");
    const int64_t width = number(all[i], "width");
    std::vector<float> out(gate_up.size() / 2);
    test::make_backend("reference")
        ->gated_activation({.gate_up = gate_up.data(),
                            .activation = activations[i],
                            .rows = static_cast<int64_t>(out.size()) / width,
                            .width = width,
                            .out = out.data()});
    INFO(required_string(all[i], "activation"));
    CHECK(test::agree_relatively(out, floats(all[i], "out"), kLimit, 1e-3));
  }
}

TEST_CASE("reference: matmul is torch's linear") {
  for (const Json& c : cases("matmul")) {
    const auto x = floats(c, "x"), weight = floats(c, "weight"), bias = floats(c, "bias");
    const auto expected = floats(c, "result");
    const auto backend = test::make_backend("reference");
    const std::vector<TensorView> views{{"w", DType::kF32, Shape{number(c, "out"), number(c, "in")},
                                         std::as_bytes(std::span(weight))}};
    const auto packed = backend->pack(views, ComputeType::kFloat32);
    std::vector<float> out(expected.size());
    backend->matmul({.x = x.data(),
                     .weight = *packed,
                     .bias = bias.data(),
                     .rows = number(c, "rows"),
                     .out = out.data()});
    CHECK(test::agree_relatively(out, expected, kLimit, kFloor));
  }
}

}  // namespace
}  // namespace kvcal
