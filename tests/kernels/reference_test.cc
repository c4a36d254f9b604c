#include <cmath>
#include <map>
#include <numeric>

#include "core/file.h"
#include "core/json.h"
#include "support/backends.h"
#include "support/near.h"

// The judge of the other tests is itself judged, by PyTorch: tests/reference/kernels_torch.py.
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

float real(const Json& c, const char* key) {
  return static_cast<float>(required_number(c, key));
}
bool flag(const Json& c, const char* key) {
  return c.at(key).get<bool>();
}

constexpr double kLimit = 1e-6, kFloor = 0.1;

TEST_CASE("reference: attention is torch's scaled_dot_product_attention") {
  for (const Json& c : cases("attention"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto q = floats(c, "q"), k = floats(c, "k"), v = floats(c, "v");
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      const std::vector<Segment> segments{
          {.q_count = number(c, "q_count"), .kv_count = number(c, "kv_count")}};
      const auto sinks = floats(c, "sinks"), expected = floats(c, "out");
      std::vector<float> out(expected.size());
      test::make_backend(name)->attention({.q = q.data(),
                                           .q_row_stride = heads * head_dim,
                                           .k = k.data(),
                                           .v = v.data(),
                                           .segments = segments,
                                           .heads = heads,
                                           .kv_heads = number(c, "kv_heads"),
                                           .head_dim = head_dim,
                                           .v_head_dim = number(c, "v_head_dim"),
                                           .softmax_scale = real(c, "softmax_scale"),
                                           .softcap = real(c, "softcap"),
                                           .sinks = sinks.empty() ? nullptr : sinks.data(),
                                           .sliding_window = number(c, "sliding_window"),
                                           .out = out.data()});
      INFO(name);
      CHECK(test::agree_relatively(out, expected, kLimit, 1.0));
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
                .interleaved = flag(c, "interleaved")});
    CHECK(test::agree_relatively(x, floats(c, "out"), kLimit, kFloor));
  }
}

TEST_CASE("reference: norm is torch's rms_norm and layer_norm") {
  for (const Json& c : cases("norm"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), weight = floats(c, "weight"), bias = floats(c, "bias");
      std::vector<float> out(x.size());
      test::make_backend(name)->norm({.x = x.data(),
                                      .weight = weight.data(),
                                      .bias = bias.empty() ? nullptr : bias.data(),
                                      .centered = flag(c, "centered"),
                                      .epsilon = real(c, "epsilon"),
                                      .rows = number(c, "rows"),
                                      .width = number(c, "width"),
                                      .out = out.data()});
      INFO(name);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 1.0));
    }
}

TEST_CASE("reference: norm_heads is torch's norm of each head") {
  for (const Json& c : cases("norm_heads"))
    for (const std::string name : {"reference", "cpu"}) {
      auto x = floats(c, "x");
      const auto weight = floats(c, "weight");
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      test::make_backend(name)->norm_heads({.x = {.data = x.data(),
                                                  .tokens = number(c, "tokens"),
                                                  .heads = heads,
                                                  .head_dim = head_dim,
                                                  .row_stride = heads * head_dim},
                                            .weight = weight.data(),
                                            .weight_per_head = flag(c, "weight_per_head"),
                                            .centered = flag(c, "centered"),
                                            .epsilon = real(c, "epsilon")});
      INFO(name);
      CHECK(test::agree_relatively(x, floats(c, "out"), kLimit, 1.0));
    }
}

TEST_CASE("reference: activations are torch's") {
  const std::map<std::string, Activation> activations{
      {"silu", Activation::kSilu},          {"gelu", Activation::kGelu},
      {"gelu_tanh", Activation::kGeluTanh}, {"quick_gelu", Activation::kQuickGelu},
      {"relu", Activation::kRelu},          {"squared_relu", Activation::kSquaredRelu}};
  for (const Json& c : cases("activate"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), expected = floats(c, "out");
      std::vector<float> out(expected.size());
      test::make_backend(name)->activate(
          {.x = x.data(),
           .gated = flag(c, "gated"),
           .activation = activations.at(required_string(c, "activation")),
           .limit = real(c, "limit"),
           .rows = number(c, "rows"),
           .width = number(c, "width"),
           .out = out.data()});
      INFO(name << ", " << required_string(c, "activation"));
      CHECK(test::agree_relatively(out, expected, kLimit, name == "cpu" ? kFloor : 1e-3));
    }
}

TEST_CASE("reference: embed is torch's embedding, on top of what is there") {
  for (const Json& c : cases("embed"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto table = floats(c, "table");
      const auto ids = c.at("ids").get<std::vector<int32_t>>();
      auto out = floats(c, "positions");
      const TensorView view{"wte", DType::kF32, Shape{number(c, "vocab"), number(c, "hidden")},
                            std::as_bytes(std::span(table))};
      test::make_backend(name)->embed({.table = view,
                                       .ids = ids,
                                       .multiplier = real(c, "multiplier"),
                                       .accumulate = true,
                                       .out = out.data()});
      INFO(name);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, kFloor));
    }
}

TEST_CASE("reference: scatter_add is torch's index_add") {
  for (const Json& c : cases("scatter_add"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), weights = floats(c, "weights");
      const auto rows = c.at("rows").get<std::vector<int32_t>>();
      auto out = floats(c, "before");
      test::make_backend(name)->scatter_add({.x = x.data(),
                                             .rows = rows.data(),
                                             .weights = weights.data(),
                                             .count = number(c, "count"),
                                             .width = number(c, "width"),
                                             .out = out.data()});
      INFO(name);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, kFloor));
    }
}

TEST_CASE("reference: load_kv reads FP8 codes as torch does") {
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  for (const Json& c : cases("load_kv"))
    for (const KvDType dtype : {KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2}) {
      if (name_of(dtype) != required_string(c, "dtype")) continue;
      const auto scales = floats(c, "scales");
      std::vector<float> out(256);
      test::make_backend("reference")
          ->load_kv({.x = codes.data(),
                     .dtype = dtype,
                     .scales = scales.data(),
                     .rows = 1,
                     .heads = 2,
                     .head_dim = 128,
                     .out = out.data()});
      for (size_t code = 0; code < 256; ++code) {
        INFO(name_of(dtype) << " code " << code);
        const Json& expected = c.at("out").at(code);
        if (expected.is_null())
          CHECK(std::isnan(out[code]));
        else if (expected.is_string())
          CHECK(out[code] == (expected == "inf" ? 1.0f : -1.0f) * INFINITY);
        else
          CHECK(out[code] == expected.get<float>());
      }
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
