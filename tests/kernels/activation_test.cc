#include <cmath>
#include <functional>

#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr Activation kActivations[] = {
    Activation::kSilu,      Activation::kGelu, Activation::kGeluTanh,
    Activation::kQuickGelu, Activation::kRelu, Activation::kSquaredRelu,
    Activation::kXielu,     Activation::kTanh, Activation::kSitu};
/// xIELU's numbers differ from one another and from 0.
ActivationFunction function_of(Activation kind, float limit = 0.0f, float gate_multiplier = 1.0f) {
  return {.kind = kind,
          .limit = limit,
          .gate_multiplier = gate_multiplier,
          .alpha_p = 0.8f,
          .alpha_n = 1.1f,
          .beta = 0.5f,
          .eps = -1e-6f,
          .up_softcap = kind == Activation::kSitu && limit == 0.0f ? 2.5f : 0.0f};
}

struct ActivationCase {
  Activation activation = Activation::kSilu;
  int64_t width = 0;
  bool gated = true;
  float limit = 0.0f;
  ComputeType type = ComputeType::kFloat32;
  float gate_multiplier = 1.0f;
  bool limits_activated = false;
  bool adds_one = true;
};

std::vector<float> activate(Backend& backend, const std::vector<float>& values,
                            const ActivationCase& c) {
  const int64_t rows = static_cast<int64_t>(values.size()) / (c.gated ? 2 * c.width : c.width);
  const test::OnBackend<float> x(backend, values);
  const test::OnBackend<std::byte> out(
      backend, std::vector<std::byte>(static_cast<size_t>(rows * c.width) * bytes_of(c.type)));
  ActivationFunction function = function_of(c.activation, c.limit, c.gate_multiplier);
  function.limits_activated = c.limits_activated;
  function.adds_one = c.adds_one;
  if (!c.gated) function.up_softcap = 0.0f;
  backend.activate({.x = x.data(),
                    .gated = c.gated,
                    .activation = function,
                    .rows = rows,
                    .width = c.width,
                    .out_type = c.type,
                    .out = out.data()});
  return test::to_floats(out.values(), c.type);
}

/// xIELU's terms, near 1, cancel each other where it crosses 0. Their roundings, up to 6e-8 each,
/// stay, times a second factor of up to 10 where the activation is gated.
double floor_of(Activation activation, double floor) {
  return activation == Activation::kXielu ? 1e-1 : floor;
}

TEST_CASE("activate: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const Activation activation : kActivations)
    for (const ComputeType type : test::kComputeTypes)
      for (const auto& [gated, limit] : {std::pair{true, 0.0f}, {true, 1.75f}, {false, 0.0f}})
        for (const int64_t width : {1, 37, 1536}) {
          const ActivationCase c{activation, width, gated, limit, type};
          const auto x = test::normal(2 * width * 9, 3, 3.0f);
          const auto expected = activate(*reference, x, c);
          test::for_each_backend([&](Backend& backend) {
            INFO("activation " << static_cast<int>(activation) << ", width " << width << ", gated "
                               << gated << ", limit " << limit);
            CHECK(test::agree_relatively(activate(backend, x, c), expected, test::rounding_of(type),
                                         floor_of(activation, 1e-4)));
          });
        }
}

TEST_CASE("activate: a multiplier of the gate acts before limit and function") {
  const auto reference = test::make_backend("reference");
  const auto x = test::normal(2 * 37 * 9, 3, 3.0f);
  for (const float limit : {0.0f, 1.75f}) {
    const ActivationCase c{Activation::kSilu, 37, true, limit, ComputeType::kFloat32, 0.4f};
    std::vector<float> scaled = x;
    for (size_t i = 0; i < scaled.size(); ++i)
      if (i / 37 % 2 == 0) scaled[i] *= 0.4f;
    const auto expected = activate(*reference, scaled, {Activation::kSilu, 37, true, limit});
    const auto agrees = [&](Backend& backend) {
      INFO("limit " << limit << " on " << backend.name());
      CHECK(test::agree_relatively(activate(backend, x, c), expected, 1e-5, 1e-4));
    };
    test::for_every_backend(agrees);
  }
}

TEST_CASE("activate: accurate over the whole line, NaN stays NaN") {
  std::vector<float> x;
  for (float value = -95.0f; value < 95.0f; value += 0.0137f) x.push_back(value);
  for (const float value : {-1e15f, 1e15f, 0.0f, -0.0f, 1e-30f, -1e-30f}) x.push_back(value);
  const int64_t width = static_cast<int64_t>(x.size());
  const auto reference = test::make_backend("reference");
  for (const Activation activation : kActivations) {
    const auto expected = activate(*reference, x, {activation, width, false});
    test::for_each_backend([&](Backend& backend) {
      INFO("activation " << static_cast<int>(activation));
      // Left of -88 the result is 0, not a subnormal; and gelu's exponent rounds in float32.
      const bool gelu = activation == Activation::kGelu || activation == Activation::kGeluTanh;
      CHECK(test::agree_relatively(activate(backend, x, {activation, width, false}), expected, 1e-5,
                                   floor_of(activation, gelu ? 1e-6 : 1e-30)));
      const auto nan = activate(backend, {NAN, 1.0f, 1.0f, NAN}, {activation, 2});
      CHECK(std::isnan(nan[0]));
      CHECK(std::isnan(nan[1]));
      const auto limited = activate(backend, {NAN, 1.0f, 1.0f, NAN}, {activation, 2, true, 7.0f});
      CHECK(std::isnan(limited[0]));
      CHECK(std::isnan(limited[1]));
    });
  }
}

TEST_CASE("activate: writes every float32 with a short mantissa as the reference does") {
  // 12 mantissa bits reach every halfway point and every kind of NaN; the ones below, too, since a
  // NaN of ones overflows when it is rounded.
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x100000u; ++bits) x.push_back(float_of(bits << 12));
  for (uint32_t bits = 0; bits < 0x1000u; ++bits) x.push_back(float_of(bits << 20 | 0xfffffu));
  const auto reference = test::make_backend("reference");
  const int64_t width = 0x1000;
  for (const ComputeType type : {ComputeType::kBFloat16, ComputeType::kFloat16}) {
    const ActivationCase c{Activation::kRelu, width, false, 0.0f, type};
    const auto expected = activate(*reference, x, c);
    test::for_each_backend([&](Backend& backend) {
      INFO(name_of(type));
      CHECK(test::same_bytes(activate(backend, x, c), expected));
    });
  }
}

TEST_CASE("activate: the limit cuts the gate above, the other half on both sides") {
  //                              gate                        up
  const std::vector<float> x{9.0f, 7.0f, -100.0f, 0.5f, 9.0f, -9.0f, 2.0f, 7.0f};
  const auto cuts = [&](Backend& backend) {
    const auto out = activate(backend, x, {Activation::kRelu, 4, true, 7.0f});
    CHECK(out == std::vector<float>{7.0f * 8.0f, 7.0f * -6.0f, 0.0f, 0.5f * 8.0f});
    ActivationCase last{Activation::kSquaredRelu, 4, true, 7.0f};
    last.limits_activated = true;  // 0.5² is below the limit, 9² and 7² above
    CHECK(activate(backend, x, last) ==
          std::vector<float>{7.0f * 7.0f, 7.0f * -7.0f, 0.0f, 0.25f * 7.0f});
    CHECK(std::isnan(
        activate(backend, {NAN, 1.0f}, {.width = 1, .limit = 7.0f, .limits_activated = true})[0]));
    ActivationCase plain{Activation::kRelu, 4, true, 7.0f};
    plain.adds_one = false;
    CHECK(activate(backend, x, plain) ==
          std::vector<float>{7.0f * 7.0f, 7.0f * -7.0f, 0.0f, 0.5f * 7.0f});
  };
  test::for_every_backend(cuts);
}

TEST_CASE("multiply_gate: every backend agrees with the reference, heads of the gate apart") {
  constexpr int64_t kTokens = 9, kHeads = 3;
  const auto run = [](Backend& backend, int64_t width, ComputeType type, GateFunction function) {
    // A query and a gate in turn, as Qwen3-Next's projection has them.
    const int64_t stride = 2 * kHeads * width;
    const test::OnBackend<float> x(backend, test::normal(kTokens * (kHeads * width + 2), 1));
    const test::OnBackend<float> all(backend, test::normal(kTokens * stride, 2, 4.0f));
    const test::OnBackend<std::byte> out(
        backend,
        std::vector<std::byte>(static_cast<size_t>(kTokens * kHeads * width) * bytes_of(type)));
    backend.multiply_gate({.x = {x.data(), kHeads * width + 2},
                           .gate = {all.data() + width, stride},
                           .gate_head_stride = 2 * width,
                           .function = function,
                           .rows = kTokens,
                           .heads = kHeads,
                           .width = width,
                           .out_type = type,
                           .out = out.data()});
    return test::to_floats(out.values(), type);
  };
  const auto reference = test::make_backend("reference");
  for (const int64_t width : {1, 37, 128})
    for (const ComputeType type : test::kComputeTypes)
      for (const GateFunction function : {GateFunction::kSilu, GateFunction::kSigmoid,
                                          GateFunction::kIdentity, GateFunction::kSoftplus}) {
        const auto expected = run(*reference, width, type, function);
        test::for_each_backend([&](Backend& backend) {
          INFO("width " << width << " as " << name_of(type));
          CHECK(test::agree_relatively(run(backend, width, type, function), expected,
                                       test::rounding_of(type), 1e-3));
        });
      }
}

TEST_CASE("multiply_gate: a gate without a stride multiplies every row") {
  const auto multiplies = [](Backend& backend) {
    const test::OnBackend<float> x(backend, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}),
        gate(backend, {0.5f, -1.0f, 2.0f});
    backend.multiply_gate({.x = {x.data(), 3},
                           .gate = {gate.data(), 0},
                           .function = GateFunction::kIdentity,
                           .rows = 2,
                           .width = 3,
                           .out = x.data()});
    CHECK(x.values() == std::vector<float>{0.5f, -2.0f, 6.0f, 2.0f, -5.0f, 12.0f});
  };
  test::for_every_backend(multiplies);
}

TEST_CASE("multiply_gate: one gate a head is that of each element") {
  constexpr int64_t kTokens = 9, kHeads = 3;
  for (const int64_t width : {1, 37, 64})
    for (const GateFunction function : {GateFunction::kSigmoid, GateFunction::kSoftplus}) {
      const auto gates = test::normal(kTokens * kHeads, 2, 4.0f);
      std::vector<float> repeated;
      for (const float gate : gates)
        repeated.insert(repeated.end(), static_cast<size_t>(width), gate);
      test::for_each_backend([&](Backend& backend) {
        const auto run = [&](const std::vector<float>& all, bool per_head) {
          const test::OnBackend<float> x(backend, test::normal(kTokens * kHeads * width, 1));
          const test::OnBackend<float> gate(backend, all);
          const test::OnBackend<float> out(backend, std::vector<float>(repeated.size()));
          backend.multiply_gate({.x = {x.data(), kHeads * width},
                                 .gate = {gate.data(), std::ssize(all) / kTokens},
                                 .gate_per_head = per_head,
                                 .function = function,
                                 .rows = kTokens,
                                 .heads = kHeads,
                                 .width = width,
                                 .out = out.data()});
          return out.values();
        };
        INFO("width " << width);
        CHECK(test::same_bytes(run(gates, true), run(repeated, false)));
      });
    }
}

TEST_CASE("multiply_gate: may write over x") {
  test::for_each_backend([](Backend& backend) {
    const test::OnBackend<float> gate(backend, test::normal(77, 2)),
        x(backend, test::normal(77, 1)), out(backend, std::vector<float>(77));
    for (float* to : {out.data(), x.data()})
      backend.multiply_gate(
          {.x = {x.data(), 77}, .gate = {gate.data(), 77}, .rows = 1, .width = 77, .out = to});
    CHECK(test::same_bytes(x.values(), out.values()));
  });
}

/// An operation that writes 3 rows of 130 and folds what it has seen into a slot.
using Observing = std::function<void(Backend&, const float* x, ComputeType, void* out, AmaxSlot)>;

const std::vector<std::pair<std::string, Observing>>& observing() {
  static const std::vector<std::pair<std::string, Observing>> all{
      {"activate",
       [](Backend& backend, const float* x, ComputeType type, void* out, AmaxSlot seen) {
         backend.activate({.x = x,
                           .gated = false,
                           .activation = {.kind = Activation::kRelu},
                           .rows = 3,
                           .width = 130,
                           .out_type = type,
                           .out = out,
                           .seen = seen});
       }},
      {"multiply_gate",
       [](Backend& backend, const float* x, ComputeType type, void* out, AmaxSlot seen) {
         backend.multiply_gate({.x = {x, 130},
                                .gate = {x, 130},
                                .rows = 3,
                                .heads = 2,
                                .width = 65,
                                .out_type = type,
                                .out = out,
                                .seen = seen});
       }},
      {"norm",
       [](Backend& backend, const float* x, ComputeType type, void* out, AmaxSlot seen) {
         backend.norm({.x = x,
                       .weight = x,
                       .rows = 3,
                       .width = 130,
                       .out_type = type,
                       .out = out,
                       .seen = seen});
       }},
      {"gated_norm",
       [](Backend& backend, const float* x, ComputeType type, void* out, AmaxSlot seen) {
         backend.gated_norm({.x = {x, 130},
                             .gate = {x, 130},
                             .weight = x,
                             .rows = 3,
                             .groups = 2,
                             .width = 65,
                             .out_type = type,
                             .out = out,
                             .seen = seen});
       }},
  };
  return all;
}

TEST_CASE("seen: an operation folds in the amax of the elements it has written") {
  auto values = test::normal(3 * 130, 1);
  values[7] = NAN;
  values[200] = INFINITY;
  values[300] = 65519.0f;  // of finite ones the largest in float16, but not the next
  values[301] = 65521.0f;
  const auto check = [&](Backend& backend) {
    for (const auto& [what, run] : observing())
      for (const ComputeType type : test::kComputeTypes)
        for (const float before : {0.25f, 1e6f}) {
          INFO(what << " as " << name_of(type));
          const test::OnBackend<float> x(backend, values), amax(backend, {before, before});
          const test::OnBackend<uint64_t> nonfinite(backend, {5, 5});
          const test::OnBackend<std::byte> out(backend,
                                               std::vector<std::byte>(3 * 130 * bytes_of(type)));
          run(backend, x.data(), type, out.data(), {amax.data(), nonfinite.data()});
          backend.observe_amax({.x = out.data(),
                                .type = type,
                                .count = 3 * 130,
                                .amax = amax.data() + 1,
                                .nonfinite = nonfinite.data() + 1});
          CHECK(amax.values()[0] == amax.values()[1]);
          CHECK(nonfinite.values()[0] == nonfinite.values()[1]);
          CHECK(nonfinite.values()[0] > 5);
        }
  };
  test::for_every_backend(check);
}

}  // namespace
}  // namespace kvcal
