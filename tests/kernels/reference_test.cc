#include <cmath>
#include <map>
#include <numeric>

#include "core/file.h"
#include "core/json.h"
#include "support/every_backend.h"
#include "support/folders.h"
#include "support/near.h"

// The judge of the other tests is itself judged, by PyTorch: reference/kernels_torch.py.
namespace kvcal {
namespace {

Json cases(const char* operation) {
  const fs::path path = test::tests_folder() / "fixtures/kernels/torch.json";
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
using Floats = test::OnBackend<float>;

/// So many numbers that nobody has written yet.
Floats room(Backend& backend, size_t count) {
  return {backend, std::vector<float>(count, NAN)};
}

/// is_decoding: as AttentionArgs has it.
void check_attention(const Json& c, bool is_decoding) {
  test::for_every_backend([&](Backend& backend) {
    const auto optional = [&](const char* key) {
      return c.contains(key) ? floats(c, key) : std::vector<float>();
    };
    const Floats q(backend, floats(c, "q")), k(backend, floats(c, "k")), v(backend, floats(c, "v"));
    const Floats sinks(backend, optional("sinks")), slopes(backend, optional("slopes"));
    const auto expected = floats(c, "out");
    const Floats out = room(backend, expected.size());
    const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
    const std::vector<Segment> segments{
        {.q_count = number(c, "q_count"), .kv_count = number(c, "kv_count")}};
    backend.attention({.q = q.data(),
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
                       .sinks = optional("sinks").empty() ? nullptr : sinks.data(),
                       .slopes = optional("slopes").empty() ? nullptr : slopes.data(),
                       .sliding_window = number(c, "sliding_window"),
                       .out = out.data(),
                       .is_decoding = is_decoding});
    INFO(backend.name());
    CHECK(test::agree_relatively(out.values(), expected, kLimit, 1.0));
  });
}

TEST_CASE("reference: attention is torch's scaled_dot_product_attention") {
  for (const Json& c : cases("attention")) check_attention(c, false);
}

TEST_CASE("reference: ALiBi is torch's attention with a float mask") {
  for (const Json& c : cases("alibi"))
    for (const bool is_decoding : {false, true}) check_attention(c, is_decoding);
}

TEST_CASE("reference: attention adds transformers' logits by distance") {
  for (const Json& c : cases("relative_attention"))
    test::for_every_backend([&](Backend& backend) {
      const Floats q(backend, floats(c, "q")), k(backend, floats(c, "k")),
          v(backend, floats(c, "v")), states(backend, floats(c, "states")),
          table(backend, floats(c, "table"));
      const auto expected = floats(c, "out");
      const Floats out = room(backend, expected.size());
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      const std::vector<Segment> segments{
          {.q_count = number(c, "q_count"), .kv_count = number(c, "kv_count")}};
      for (const bool is_decoding : {false, true}) {
        backend.attention({.q = q.data(),
                           .q_row_stride = heads * head_dim,
                           .k = k.data(),
                           .v = v.data(),
                           .segments = segments,
                           .heads = heads,
                           .kv_heads = number(c, "kv_heads"),
                           .head_dim = head_dim,
                           .softmax_scale = real(c, "softmax_scale"),
                           .sliding_window = number(c, "sliding_window"),
                           .relative = {.states = states.data(),
                                        .table = table.data(),
                                        .rank = number(c, "rank"),
                                        .extent = number(c, "extent")},
                           .out = out.data(),
                           .is_decoding = is_decoding});
        INFO(backend.name());
        CHECK(test::agree_relatively(out.values(), expected, kLimit, 1.0));
      }
    });
}

TEST_CASE("reference: rope turns as torch's complex multiplication") {
  for (const Json& c : cases("rope"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x")), cosines(backend, floats(c, "cos")),
          sines(backend, floats(c, "sin"));
      const test::OnBackend<int32_t> positions(backend,
                                               c.at("positions").get<std::vector<int32_t>>());
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      backend.rope({.x = {.data = x.data(),
                          .tokens = number(c, "tokens"),
                          .heads = heads,
                          .head_dim = head_dim,
                          .row_stride = heads * head_dim},
                    .positions = positions.data(),
                    .cos = cosines.data(),
                    .sin = sines.data(),
                    .rotary_dim = number(c, "rotary_dim"),
                    .interleaved = flag(c, "interleaved")});
      INFO(backend.name());
      CHECK(test::agree_relatively(x.values(), floats(c, "out"), kLimit, kFloor));
    });
}

TEST_CASE("reference: norm is torch's rms_norm and layer_norm") {
  for (const Json& c : cases("norm"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x")), weight(backend, floats(c, "weight")),
          bias(backend, floats(c, "bias"));
      const auto expected = floats(c, "out");
      const Floats out = room(backend, expected.size());
      backend.norm({.x = x.data(),
                    .weight = weight.data(),
                    .bias = floats(c, "bias").empty() ? nullptr : bias.data(),
                    .centered = flag(c, "centered"),
                    .epsilon = real(c, "epsilon"),
                    .rows = number(c, "rows"),
                    .width = number(c, "width"),
                    .out = out.data()});
      INFO(backend.name());
      CHECK(test::agree_relatively(out.values(), expected, kLimit, 1.0));
    });
}

TEST_CASE("reference: norm_heads is torch's norm of each head") {
  for (const Json& c : cases("norm_heads"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x")), weight(backend, floats(c, "weight"));
      const Floats bias(backend, floats(c, "bias"));
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      backend.norm_heads({.x = {.data = x.data(),
                                .tokens = number(c, "tokens"),
                                .heads = heads,
                                .head_dim = head_dim,
                                .row_stride = heads * head_dim},
                          .weight = weight.data(),
                          .bias = floats(c, "bias").empty() ? nullptr : bias.data(),
                          .weight_per_head = flag(c, "weight_per_head"),
                          .centered = flag(c, "centered"),
                          .epsilon = real(c, "epsilon")});
      INFO(backend.name());
      CHECK(test::agree_relatively(x.values(), floats(c, "out"), kLimit, 1.0));
    });
}

TEST_CASE("reference: activations are torch's") {
  const std::map<std::string, Activation> activations{
      {"silu", Activation::kSilu},          {"gelu", Activation::kGelu},
      {"gelu_tanh", Activation::kGeluTanh}, {"quick_gelu", Activation::kQuickGelu},
      {"relu", Activation::kRelu},          {"squared_relu", Activation::kSquaredRelu},
      {"xielu", Activation::kXielu}};
  for (const Json& c : cases("activate"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x"));
      const auto expected = floats(c, "out");
      const Floats out = room(backend, expected.size());
      backend.activate({.x = x.data(),
                        .gated = flag(c, "gated"),
                        .activation = {.kind = activations.at(required_string(c, "activation")),
                                       .limit = real(c, "limit"),
                                       .alpha_p = real(c, "alpha_p"),
                                       .alpha_n = real(c, "alpha_n"),
                                       .beta = real(c, "beta"),
                                       .eps = real(c, "eps")},
                        .rows = number(c, "rows"),
                        .width = number(c, "width"),
                        .out = out.data()});
      INFO(backend.name() << ", " << required_string(c, "activation"));
      CHECK(test::agree_relatively(out.values(), expected, kLimit,
                                   backend.name() == "reference" ? 1e-3 : kFloor));
    });
}

TEST_CASE("reference: attend_streams is Kimi-K3's attention over residual sums") {
  for (const Json& c : cases("attend_streams"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x")), weight(backend, floats(c, "weight"));
      const std::vector<float> expected = floats(c, "out");
      const Floats out = room(backend, expected.size());
      backend.attend_streams({.x = x.data(),
                              .weight = weight.data(),
                              .epsilon = real(c, "epsilon"),
                              .streams = number(c, "streams"),
                              .rows = number(c, "rows"),
                              .width = number(c, "width"),
                              .out = out.data()});
      INFO(backend.name() << ", " << number(c, "streams") << " streams");
      CHECK(test::agree_relatively(out.values(), expected, kLimit, 1.0));
    });
}

TEST_CASE("reference: SiTU is that of Kimi-K3") {
  for (const Json& c : cases("situ"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x"));
      const auto expected = floats(c, "out");
      const Floats out = room(backend, expected.size());
      backend.activate({.x = x.data(),
                        .gated = flag(c, "gated"),
                        .activation = {.kind = Activation::kSitu,
                                       .beta = real(c, "beta"),
                                       .up_softcap = real(c, "up_softcap")},
                        .rows = number(c, "rows"),
                        .width = number(c, "width"),
                        .out = out.data()});
      INFO(backend.name() << ", beta " << real(c, "beta"));
      CHECK(test::agree_relatively(out.values(), expected, kLimit, kFloor));
    });
}

TEST_CASE("reference: embed is torch's embedding, on top of what is there") {
  for (const Json& c : cases("embed"))
    test::for_every_backend([&](Backend& backend) {
      const auto table = floats(c, "table");
      const auto ids = c.at("ids").get<std::vector<int32_t>>();
      const Floats out(backend, floats(c, "positions"));
      const TensorView view{"wte", DType::kF32, Shape{number(c, "vocab"), number(c, "hidden")},
                            std::as_bytes(std::span(table))};
      backend.embed({.table = view,
                     .ids = ids,
                     .multiplier = real(c, "multiplier"),
                     .accumulate = true,
                     .out = out.data()});
      INFO(backend.name());
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, kFloor));
    });
}

TEST_CASE("reference: combine_rows is torch's index_add") {
  for (const Json& c : cases("scatter_add"))
    test::for_every_backend([&](Backend& backend) {
      const Floats x(backend, floats(c, "x")), weights(backend, floats(c, "weights")),
          out(backend, floats(c, "before"));
      const auto count = static_cast<int32_t>(number(c, "count"));
      const auto rows = static_cast<int64_t>(floats(c, "out").size()) / number(c, "width");
      std::vector<int32_t> of_rows(static_cast<size_t>(rows), count);  // a place behind x
      for (int32_t i = 0; i < count; ++i)
        of_rows[c.at("rows").at(static_cast<size_t>(i)).get<size_t>()] = i;
      const test::OnBackend<int32_t> places(backend, of_rows);
      backend.combine_rows({.x = x.data(),
                            .places = places.data(),
                            .weights = weights.data(),
                            .count = count,
                            .rows = rows,
                            .width = number(c, "width"),
                            .out = out.data()});
      INFO(backend.name());
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, kFloor));
    });
}

TEST_CASE("reference: load_kv reads FP8 codes as torch does") {
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  for (const Json& c : cases("load_kv"))
    for (const KvDType dtype : {KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2}) {
      if (name_of(dtype) != required_string(c, "dtype")) continue;
      test::for_every_backend([&](Backend& backend) {
        const test::OnBackend<uint8_t> x(backend, codes);
        const Floats scales(backend, floats(c, "scales")), out = room(backend, 256);
        backend.load_kv({.x = x.data(),
                         .dtype = dtype,
                         .scales = scales.data(),
                         .rows = 1,
                         .heads = 2,
                         .head_dim = 128,
                         .out = out.data()});
        const auto values = out.values();
        for (size_t code = 0; code < 256; ++code) {
          INFO(backend.name() << ", " << name_of(dtype) << " code " << code);
          const Json& expected = c.at("out").at(code);
          if (expected.is_null())
            CHECK(std::isnan(values[code]));
          else if (expected.is_string())
            CHECK(values[code] == (expected == "inf" ? 1.0f : -1.0f) * INFINITY);
          else
            CHECK(values[code] == expected.get<float>());
        }
      });
    }
}

TEST_CASE("reference: matmul is torch's linear") {
  for (const Json& c : cases("matmul"))
    test::for_every_backend([&](Backend& backend) {
      const auto weight = floats(c, "weight"), expected = floats(c, "result");
      const Floats x(backend, floats(c, "x")), bias(backend, floats(c, "bias")),
          out = room(backend, expected.size());
      const std::vector<TensorView> views{{"w", DType::kF32,
                                           Shape{number(c, "out"), number(c, "in")},
                                           std::as_bytes(std::span(weight))}};
      const auto packed = backend.pack(views, ComputeType::kFloat32);
      backend.matmul({.x = x.data(),
                      .weight = *packed,
                      .bias = bias.data(),
                      .rows = number(c, "rows"),
                      .out = out.data()});
      INFO(backend.name());
      CHECK(test::agree_relatively(out.values(), expected, kLimit, kFloor));
    });
}

}  // namespace
}  // namespace kvcal
