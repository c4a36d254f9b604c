#include "core/file.h"
#include "core/json.h"
#include "support/every_backend.h"
#include "support/folders.h"
#include "support/near.h"

// The operations of layers without attention, judged by PyTorch: reference/kernels_scans.py.
namespace kvcal {
namespace {

Json cases(const char* operation) {
  const fs::path path = test::tests_folder() / "fixtures/kernels/scans.json";
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
GateFunction gate_function(const Json& c) {
  return c.at("function") == "silu" ? GateFunction::kSilu : GateFunction::kSigmoid;
}

constexpr double kLimit = 2e-6;

/// Numbers of a case in a backend's memory, or null where it has none.
class Numbers {
 public:
  Numbers(Backend& backend, const Json& c, const char* key)
      : values_(floats(c, key)), memory_(backend, values_) {}
  float* data() const { return values_.empty() ? nullptr : memory_.data(); }
  std::vector<float> values() const { return memory_.values(); }

 private:
  std::vector<float> values_;
  test::OnBackend<float> memory_;
};

TEST_CASE("reference: causal_conv is torch's conv1d, and leaves the last rows as state") {
  for (const Json& c : cases("causal_conv"))
    test::for_every_backend([&](Backend& backend) {
      const Numbers x(backend, c, "x"), weight(backend, c, "weight"), bias(backend, c, "bias");
      const Numbers state(backend, c, "state");
      const test::OnBackend<float> out(backend, std::vector<float>(x.values().size()));
      const std::vector<Segment> segments{{.q_count = number(c, "rows")}};
      const int64_t channels = number(c, "channels");
      backend.causal_conv({.x = {x.data(), channels},
                           .weight = weight.data(),
                           .bias = bias.data(),
                           .silu = flag(c, "silu"),
                           .segments = segments,
                           .channels = channels,
                           .kernel = number(c, "kernel"),
                           .state = state.data(),
                           .out = out.data()});
      INFO(backend.name() << ", kernel " << number(c, "kernel"));
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, 1.0));
      CHECK(test::same_bytes(state.values(), floats(c, "after")));
    });
}

TEST_CASE("reference: ssm_scan is the scan of Mamba 1 and 2") {
  for (const Json& c : cases("ssm_scan"))
    test::for_every_backend([&](Backend& backend) {
      const Numbers x(backend, c, "x"), dt(backend, c, "dt"), bias(backend, c, "dt_bias");
      const Numbers a(backend, c, "a"), b(backend, c, "b"), weights(backend, c, "c"),
          d(backend, c, "d");
      const Numbers state(backend, c, "state");
      const test::OnBackend<float> out(backend, std::vector<float>(x.values().size()));
      const std::vector<Segment> segments{{.q_count = number(c, "rows")}};
      const int64_t heads = number(c, "heads"), head_dim = number(c, "head_dim");
      const int64_t groups = number(c, "groups"), state_dim = number(c, "state_dim");
      backend.ssm_scan({.x = {x.data(), heads * head_dim},
                        .dt = {dt.data(), heads},
                        .dt_bias = bias.data(),
                        .dt_min = real(c, "dt_min"),
                        .dt_max = real(c, "dt_max"),
                        .a = a.data(),
                        .a_per_state = flag(c, "a_per_state"),
                        .b = {b.data(), groups * state_dim},
                        .c = {weights.data(), groups * state_dim},
                        .d = d.data(),
                        .segments = segments,
                        .heads = heads,
                        .head_dim = head_dim,
                        .groups = groups,
                        .state_dim = state_dim,
                        .state = state.data(),
                        .out = out.data()});
      INFO(backend.name() << ", " << heads << " heads of " << head_dim);
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, 1.0));
      CHECK(test::agree_relatively(state.values(), floats(c, "after"), kLimit, 1.0));
    });
}

TEST_CASE("reference: delta_scan is the gated delta rule") {
  for (const Json& c : cases("delta_scan"))
    test::for_every_backend([&](Backend& backend) {
      const Numbers q(backend, c, "q"), k(backend, c, "k"), v(backend, c, "v");
      const Numbers g(backend, c, "g"), beta(backend, c, "beta");
      const Numbers rate(backend, c, "decay_rate"), bias(backend, c, "g_bias");
      const Numbers state(backend, c, "state");
      const test::OnBackend<float> out(backend, std::vector<float>(v.values().size()));
      const std::vector<Segment> segments{{.q_count = number(c, "rows")}};
      const int64_t k_heads = number(c, "k_heads"), v_heads = number(c, "v_heads");
      const int64_t k_dim = number(c, "k_dim"), v_dim = number(c, "v_dim");
      const bool by_key = flag(c, "decay_per_key");
      backend.delta_scan({.q = {q.data(), k_heads * k_dim},
                          .k = {k.data(), k_heads * k_dim},
                          .v = {v.data(), v_heads * v_dim},
                          .g = {g.data(), by_key ? v_heads * k_dim : v_heads},
                          .beta = {beta.data(), v_heads},
                          .decay_rate = rate.data(),
                          .g_bias = bias.data(),
                          .decay_floor = real(c, "decay_floor"),
                          .decay_per_key = by_key,
                          .logistic_beta = flag(c, "logistic_beta"),
                          .normalize = flag(c, "normalize"),
                          .segments = segments,
                          .k_heads = k_heads,
                          .v_heads = v_heads,
                          .k_dim = k_dim,
                          .v_dim = v_dim,
                          .state = state.data(),
                          .out = out.data()});
      INFO(backend.name() << ", k_dim " << k_dim << ", v_dim " << v_dim);
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, 1.0));
      CHECK(test::agree_relatively(state.values(), floats(c, "after"), kLimit, 1.0));
    });
}

TEST_CASE("reference: connect_streams makes the weights of DeepSeek-V4's hyper-connections") {
  for (const Json& c : cases("connect_streams"))
    test::for_every_backend([&](Backend& backend) {
      const Numbers x(backend, c, "x"), base(backend, c, "base"), scale(backend, c, "scale");
      const std::vector<float> collapse = floats(c, "collapse"), expand = floats(c, "expand");
      const test::OnBackend<float> collapses(backend, std::vector<float>(collapse.size())),
          expands(backend, std::vector<float>(expand.size()));
      backend.connect_streams({.x = x.data(),
                               .scale = scale.data(),
                               .base = base.data(),
                               .rows = number(c, "rows"),
                               .streams = number(c, "streams"),
                               .iterations = number(c, "iterations"),
                               .epsilon = real(c, "epsilon"),
                               .collapse = collapses.data(),
                               .expand = expands.data()});
      INFO(backend.name() << ", " << number(c, "streams") << " streams");
      CHECK(test::agree_relatively(collapses.values(), collapse, kLimit, 1.0));
      CHECK(test::agree_relatively(expands.values(), expand, kLimit, 1.0));
    });
}

TEST_CASE("reference: gated_norm is the RMSNormGated of Mamba 2 and of Qwen3-Next") {
  for (const Json& c : cases("gated_norm"))
    test::for_every_backend([&](Backend& backend) {
      const Numbers x(backend, c, "x"), gate(backend, c, "gate"), weight(backend, c, "weight");
      const test::OnBackend<float> out(backend, std::vector<float>(x.values().size()));
      const int64_t groups = number(c, "groups"), width = number(c, "width");
      backend.gated_norm({.x = {x.data(), groups * width},
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
      INFO(backend.name() << ", gate first " << flag(c, "gate_first"));
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, 0.1));
    });
}

TEST_CASE("reference: multiply_gate is torch's sigmoid and silu") {
  for (const Json& c : cases("multiply_gate"))
    test::for_every_backend([&](Backend& backend) {
      const Numbers x(backend, c, "x"), gate(backend, c, "gate");
      const test::OnBackend<float> out(backend, std::vector<float>(x.values().size()));
      const int64_t heads = number(c, "heads"), width = number(c, "width");
      backend.multiply_gate({.x = {x.data(), heads * width},
                             .gate = {gate.data(), heads * width},
                             .function = gate_function(c),
                             .rows = number(c, "rows"),
                             .heads = heads,
                             .width = width,
                             .out = out.data()});
      INFO(backend.name());
      CHECK(test::agree_relatively(out.values(), floats(c, "out"), kLimit, 0.1));
    });
}

}  // namespace
}  // namespace kvcal
