#include "core/file.h"
#include "core/json.h"
#include "support/backends.h"
#include "support/near.h"

// The operations of layers without attention, judged by PyTorch: tests/reference/kernels_scans.py.
namespace kvcal {
namespace {

Json cases(const char* operation) {
  const fs::path path = fs::path(KVCAL_TESTS_DIR) / "fixtures/kernels/scans.json";
  return parse_json(read_text(path)).at(operation);
}
std::vector<float> floats(const Json& c, const char* key) {
  return c.at(key).get<std::vector<float>>();
}
const float* or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
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
GateFunction gate_function(const Json& c) {
  return c.at("function") == "silu" ? GateFunction::kSilu : GateFunction::kSigmoid;
}

constexpr double kLimit = 2e-6;

TEST_CASE("reference: causal_conv is torch's conv1d, and leaves the last rows as state") {
  for (const Json& c : cases("causal_conv"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), weight = floats(c, "weight"), bias = floats(c, "bias");
      auto state = floats(c, "state");
      std::vector<float> out(x.size());
      const std::vector<Segment> segments{{.q_count = number(c, "rows")}};
      const int64_t channels = number(c, "channels");
      test::make_backend(name)->causal_conv({.x = {x.data(), channels},
                                             .weight = weight.data(),
                                             .bias = or_null(bias),
                                             .silu = flag(c, "silu"),
                                             .segments = segments,
                                             .channels = channels,
                                             .kernel = number(c, "kernel"),
                                             .state = state.data(),
                                             .out = out.data()});
      INFO(name << ", kernel " << number(c, "kernel"));
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 1.0));
      CHECK(test::same_bytes(state, floats(c, "after")));
    }
}

TEST_CASE("reference: ssm_scan is the scan of Mamba 1 and 2") {
  for (const Json& c : cases("ssm_scan"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), dt = floats(c, "dt"), bias = floats(c, "dt_bias");
      const auto a = floats(c, "a"), b = floats(c, "b"), weights = floats(c, "c"),
                 d = floats(c, "d");
      auto state = floats(c, "state");
      std::vector<float> out(x.size());
      const std::vector<Segment> segments{{.q_count = number(c, "rows")}};
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      const int64_t groups = number(c, "groups"), state_dim = number(c, "state_dim");
      test::make_backend(name)->ssm_scan({.x = {x.data(), heads * head_dim},
                                          .dt = {dt.data(), heads},
                                          .dt_bias = bias.data(),
                                          .dt_min = real(c, "dt_min"),
                                          .dt_max = real(c, "dt_max"),
                                          .a = a.data(),
                                          .a_per_state = flag(c, "a_per_state"),
                                          .b = {b.data(), groups * state_dim},
                                          .c = {weights.data(), groups * state_dim},
                                          .d = or_null(d),
                                          .segments = segments,
                                          .heads = heads,
                                          .head_dim = head_dim,
                                          .groups = groups,
                                          .state_dim = state_dim,
                                          .state = state.data(),
                                          .out = out.data()});
      INFO(name << ", " << heads << " heads of " << head_dim);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 1.0));
      CHECK(test::agree_relatively(state, floats(c, "after"), kLimit, 1.0));
    }
}

TEST_CASE("reference: delta_scan is the gated delta rule") {
  for (const Json& c : cases("delta_scan"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto q = floats(c, "q"), k = floats(c, "k"), v = floats(c, "v");
      const auto g = floats(c, "g"), beta = floats(c, "beta");
      const auto rate = floats(c, "decay_rate"), bias = floats(c, "g_bias");
      auto state = floats(c, "state");
      std::vector<float> out(v.size());
      const std::vector<Segment> segments{{.q_count = number(c, "rows")}};
      const int64_t k_heads = number(c, "k_heads"), v_heads = number(c, "v_heads");
      const int64_t k_dim = number(c, "k_dim"), v_dim = number(c, "v_dim");
      test::make_backend(name)->delta_scan({.q = {q.data(), k_heads * k_dim},
                                            .k = {k.data(), k_heads * k_dim},
                                            .v = {v.data(), v_heads * v_dim},
                                            .g = {g.data(), v_heads},
                                            .beta = {beta.data(), v_heads},
                                            .decay_rate = or_null(rate),
                                            .g_bias = or_null(bias),
                                            .logistic_beta = flag(c, "logistic_beta"),
                                            .normalize = flag(c, "normalize"),
                                            .segments = segments,
                                            .k_heads = k_heads,
                                            .v_heads = v_heads,
                                            .k_dim = k_dim,
                                            .v_dim = v_dim,
                                            .state = state.data(),
                                            .out = out.data()});
      INFO(name << ", k_dim " << k_dim << ", v_dim " << v_dim);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 1.0));
      CHECK(test::agree_relatively(state, floats(c, "after"), kLimit, 1.0));
    }
}

TEST_CASE("reference: gated_norm is the RMSNormGated of Mamba 2 and of Qwen3-Next") {
  for (const Json& c : cases("gated_norm"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), gate = floats(c, "gate"), weight = floats(c, "weight");
      std::vector<float> out(x.size());
      const int64_t groups = number(c, "groups"), width = number(c, "width");
      test::make_backend(name)->gated_norm({.x = {x.data(), groups * width},
                                            .gate = {gate.data(), groups * width},
                                            .weight = weight.data(),
                                            .weight_per_group = flag(c, "weight_per_group"),
                                            .gate_first = flag(c, "gate_first"),
                                            .function = gate_function(c),
                                            .epsilon = real(c, "epsilon"),
                                            .rows = number(c, "rows"),
                                            .groups = groups,
                                            .width = width,
                                            .out = out.data()});
      INFO(name << ", gate first " << flag(c, "gate_first"));
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 0.1));
    }
}

TEST_CASE("reference: multiply_gate is torch's sigmoid and silu") {
  for (const Json& c : cases("multiply_gate"))
    for (const std::string name : {"reference", "cpu"}) {
      const auto x = floats(c, "x"), gate = floats(c, "gate");
      std::vector<float> out(x.size());
      const int64_t heads = number(c, "heads"), width = number(c, "width");
      test::make_backend(name)->multiply_gate({.x = {x.data(), heads * width},
                                               .gate = {gate.data(), heads * width},
                                               .function = gate_function(c),
                                               .rows = number(c, "rows"),
                                               .heads = heads,
                                               .width = width,
                                               .out = out.data()});
      INFO(name);
      CHECK(test::agree_relatively(out, floats(c, "out"), kLimit, 0.1));
    }
}

}  // namespace
}  // namespace kvcal
