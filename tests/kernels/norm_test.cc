#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

struct NormCase {
  int64_t rows = 0, width = 0;
  ComputeType type = ComputeType::kFloat32;
  bool centered = false, biased = false;
  float deviation = 1.0f;
  float mean = 0.0f;
};

std::vector<float> norm(Backend& backend, const NormCase& c) {
  auto values = test::normal(c.rows * c.width, 1, c.deviation);
  for (float& value : values) value += c.mean;
  const test::OnBackend<float> x(backend, values), weight(backend, test::normal(c.width, 2));
  const test::OnBackend<float> bias(backend, test::normal(c.width, 3));
  const test::OnBackend<std::byte> out(
      backend, std::vector<std::byte>(static_cast<size_t>(c.rows * c.width) * bytes_of(c.type)));
  backend.norm({.x = x.data(),
                .weight = weight.data(),
                .bias = c.biased ? bias.data() : nullptr,
                .centered = c.centered,
                .epsilon = 1e-5f,
                .rows = c.rows,
                .width = c.width,
                .out_type = c.type,
                .out = out.data()});
  return test::to_floats(out.values(), c.type);
}

constexpr std::pair<bool, bool> kKinds[] = {
    {false, false}, {false, true}, {true, false}, {true, true}};

TEST_CASE("norm: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const auto& [centered, biased] : kKinds)
    for (const ComputeType type : test::kComputeTypes)
      for (const auto& [rows, width] :
           {std::pair<int64_t, int64_t>{0, 8}, {1, 1}, {5, 37}, {70, 576}, {3, 4096}, {2, 130}})
        for (const float deviation : {1e-4f, 1.0f, 100.0f}) {
          const NormCase c{.rows = rows,
                           .width = width,
                           .type = type,
                           .centered = centered,
                           .biased = biased,
                           .deviation = deviation};
          const auto expected = norm(*reference, c);
          test::for_each_backend([&](Backend& backend) {
            INFO(rows << " rows of " << width << " as " << name_of(type) << ", centered "
                      << centered << ", biased " << biased);
            CHECK(test::agree_relatively(norm(backend, c), expected, test::rounding_of(type),
                                         centered || biased ? 0.1 : 1e-4));
          });
        }
}

TEST_CASE("norm: a mean far from zero costs a centered row no digits of its variance") {
  const auto reference = test::make_backend("reference");
  const NormCase c{.rows = 4, .width = 577, .centered = true, .deviation = 0.5f, .mean = 300.0f};
  const auto expected = norm(*reference, c);
  test::for_each_backend([&](Backend& backend) {
    CHECK(test::agree_relatively(norm(backend, c), expected, 5e-4, 1.0));
  });
}

struct NormHeadsCase {
  int64_t tokens = 0, heads = 0, head_dim = 0, extra_stride = 0;
  bool centered = false, weight_per_head = false;
};

std::vector<float> norm_heads(Backend& backend, const NormHeadsCase& c) {
  const int64_t stride = c.heads * c.head_dim + c.extra_stride;
  const test::OnBackend<float> x(backend, test::normal(c.tokens * stride, 8));
  const test::OnBackend<float> weight(
      backend, test::normal(c.weight_per_head ? c.heads * c.head_dim : c.head_dim, 9));
  backend.norm_heads({.x = {.data = x.data(),
                            .tokens = c.tokens,
                            .heads = c.heads,
                            .head_dim = c.head_dim,
                            .row_stride = stride},
                      .weight = weight.data(),
                      .weight_per_head = c.weight_per_head,
                      .centered = c.centered,
                      .epsilon = 1e-6f});
  return x.values();
}

TEST_CASE("norm_heads: every backend agrees with the reference and leaves the rest alone") {
  const auto reference = test::make_backend("reference");
  for (const auto& [centered, per_head] : kKinds)
    for (NormHeadsCase c : {NormHeadsCase{3, 9, 64},
                            {70, 2, 80, 5},
                            {2, 3, 7},
                            {600, 1, 128, 64},
                            {1, 1, 256},
                            {0, 2, 8}}) {
      c.centered = centered;
      c.weight_per_head = per_head;
      const auto before = test::normal(c.tokens * (c.heads * c.head_dim + c.extra_stride), 8);
      const auto expected = norm_heads(*reference, c);
      test::for_each_backend([&](Backend& backend) {
        INFO(c.tokens << " tokens, head_dim " << c.head_dim << ", centered " << centered);
        const auto actual = norm_heads(backend, c);
        CHECK(test::agree_relatively(actual, expected, 1e-5, 0.1));
        const int64_t width = c.heads * c.head_dim, stride = width + c.extra_stride;
        for (int64_t t = 0; t < c.tokens; ++t)
          CHECK(std::equal(actual.begin() + t * stride + width, actual.begin() + (t + 1) * stride,
                           before.begin() + t * stride + width));
      });
    }
}

TEST_CASE("norm_heads: gives the bytes of norm on the same row") {
  // One arithmetic: a model may norm all heads at once or each by itself.
  const auto x = test::normal(80, 1), weight = test::normal(80, 2);
  for (const bool centered : {false, true})
    test::for_each_backend([&](Backend& backend) {
      std::vector<float> out(80), heads = x;
      backend.norm({.x = x.data(),
                    .weight = weight.data(),
                    .centered = centered,
                    .epsilon = 1e-5f,
                    .rows = 1,
                    .width = 80,
                    .out = out.data()});
      backend.norm_heads({.x = {heads.data(), 1, 1, 80, 80},
                          .weight = weight.data(),
                          .centered = centered,
                          .epsilon = 1e-5f});
      CHECK(test::same_bytes(heads, out));
    });
}

TEST_CASE("gated_norm: every backend agrees with the reference") {
  constexpr int64_t kTokens = 9, kGroups = 3;
  const auto run = [](Backend& backend, int64_t width, ComputeType type, bool gate_first,
                      GateFunction function) {
    const int64_t stride = 2 * kGroups * width + 1;  // gate and x are slices of one projection
    const test::OnBackend<float> all(backend, test::normal(kTokens * stride, 1, 2.0f));
    const test::OnBackend<float> weight(backend, test::normal(kGroups * width, 2));
    const test::OnBackend<std::byte> out(
        backend,
        std::vector<std::byte>(static_cast<size_t>(kTokens * kGroups * width) * bytes_of(type)));
    backend.gated_norm({.x = {all.data() + kGroups * width, stride},
                        .gate = {all.data(), stride},
                        .weight = weight.data(),
                        .weight_per_group = gate_first,
                        .gate_first = gate_first,
                        .function = function,
                        .epsilon = 1e-5f,
                        .rows = kTokens,
                        .groups = kGroups,
                        .width = width,
                        .out_type = type,
                        .out = out.data()});
    return test::to_floats(out.values(), type);
  };
  const auto reference = test::make_backend("reference");
  for (const int64_t width : {1, 37, 128, 600})
    for (const ComputeType type : test::kComputeTypes)
      for (const bool gate_first : {false, true})
        for (const GateFunction function : {GateFunction::kSilu, GateFunction::kSigmoid}) {
          const auto expected = run(*reference, width, type, gate_first, function);
          test::for_each_backend([&](Backend& backend) {
            INFO("width " << width << " as " << name_of(type) << ", gate first " << gate_first);
            CHECK(test::agree_relatively(run(backend, width, type, gate_first, function), expected,
                                         test::rounding_of(type), 1e-3));
          });
        }
}

}  // namespace
}  // namespace kvcal
