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

/// One lane of a CPU may sum up a whole row, which costs a digit where the row is this long.
double sum_limit(const Backend& backend, int64_t width) {
  return backend.is_host() && width > 20000 ? 1e-4 : 1e-5;
}

TEST_CASE("norm: rows of any width agree with the reference") {
  const auto reference = test::make_backend("reference");
  for (const int64_t width : {2, 3, 4, 512, 513, 2052, 16384, 16385, 100000})
    for (const bool centered : {false, true}) {
      const NormCase c{.rows = 3, .width = width, .centered = centered, .biased = true};
      const auto expected = norm(*reference, c);
      test::for_each_backend([&](Backend& backend) {
        INFO("rows of " << width << ", centered " << centered);
        CHECK(test::agree_relatively(norm(backend, c), expected, sum_limit(backend, width), 0.1));
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
  bool centered = false, weight_per_head = false, has_bias = false;
};

std::vector<float> norm_heads(Backend& backend, const NormHeadsCase& c) {
  const int64_t stride = c.heads * c.head_dim + c.extra_stride;
  const test::OnBackend<float> x(backend, test::normal(c.tokens * stride, 8));
  const test::OnBackend<float> weight(
      backend, test::normal(c.weight_per_head ? c.heads * c.head_dim : c.head_dim, 9));
  const test::OnBackend<float> bias(
      backend, test::normal(c.weight_per_head ? c.heads * c.head_dim : c.head_dim, 10));
  backend.norm_heads({.x = {.data = x.data(),
                            .tokens = c.tokens,
                            .heads = c.heads,
                            .head_dim = c.head_dim,
                            .row_stride = stride},
                      .weight = weight.data(),
                      .bias = c.has_bias ? bias.data() : nullptr,
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
      c.has_bias = c.heads % 2 == 1;
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
      const test::OnBackend<float> row(backend, x), heads(backend, x), by(backend, weight);
      const test::OnBackend<float> out(backend, std::vector<float>(80));
      backend.norm({.x = row.data(),
                    .weight = by.data(),
                    .centered = centered,
                    .epsilon = 1e-5f,
                    .rows = 1,
                    .width = 80,
                    .out = out.data()});
      backend.norm_heads({.x = {heads.data(), 1, 1, 80, 80},
                          .weight = by.data(),
                          .centered = centered,
                          .epsilon = 1e-5f});
      CHECK(test::same_bytes(heads.values(), out.values()));
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
        for (const GateFunction function : {GateFunction::kSilu, GateFunction::kSigmoid,
                                            GateFunction::kIdentity, GateFunction::kSoftplus}) {
          const auto expected = run(*reference, width, type, gate_first, function);
          test::for_each_backend([&](Backend& backend) {
            INFO("width " << width << " as " << name_of(type) << ", gate first " << gate_first);
            CHECK(test::agree_relatively(run(backend, width, type, gate_first, function), expected,
                                         test::rounding_of(type), 1e-3));
          });
        }
}

struct ResidualCase {
  int64_t rows = 0, width = 0;
  bool has_output_norm = false, has_next = false, centered = false;
  ComputeType type = ComputeType::kFloat32;
};

struct Residual {
  std::vector<float> hidden, out, amax;
  std::vector<uint64_t> nonfinite;
};

/// at_once: by the operation, else by its parts one after the other.
Residual residual_norm(Backend& backend, const ResidualCase& c, bool at_once) {
  const int64_t count = c.rows * c.width;
  const test::OnBackend<float> x(backend, test::normal(count, 1)),
      hidden(backend, test::normal(count, 2)), scratch(backend, test::normal(count, 3)),
      output_weight(backend, test::normal(c.width, 4)),
      next_weight(backend, test::normal(c.width, 5)), bias(backend, test::normal(c.width, 6)),
      amax(backend, {0.5f});
  const test::OnBackend<uint64_t> nonfinite(backend, {5});
  const test::OnBackend<std::byte> out(
      backend, std::vector<std::byte>(static_cast<size_t>(count) * bytes_of(c.type)));
  const ResidualNormArgs args{.x = x.data(),
                              .output_weight = c.has_output_norm ? output_weight.data() : nullptr,
                              .multiplier = 0.22f,
                              .hidden = hidden.data(),
                              .next_weight = c.has_next ? next_weight.data() : nullptr,
                              .next_bias = c.centered ? bias.data() : nullptr,
                              .centered = c.centered,
                              .epsilon = 1e-5f,
                              .rows = c.rows,
                              .width = c.width,
                              .scratch = scratch.data(),
                              .out_type = c.type,
                              .out = out.data(),
                              .seen = {amax.data(), nonfinite.data()}};
  if (at_once)
    backend.residual_norm(args);
  else
    backend.Backend::residual_norm(args);
  return {hidden.values(), test::to_floats(out.values(), c.type), amax.values(),
          nonfinite.values()};
}

TEST_CASE("residual_norm: agrees with the reference, and gives the bytes of its parts") {
  const auto reference = test::make_backend("reference");
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 8},
                                    {1, 1},
                                    {5, 37},
                                    {70, 64},
                                    {3, 577},
                                    {2, 4096},
                                    {1, 20001}})
    for (const auto& [has_output_norm, has_next] : kKinds)
      for (const bool centered : {false, true}) {
        const ComputeType type = test::kComputeTypes[width % 3];
        const ResidualCase c{rows, width, has_output_norm, has_next, centered, type};
        const Residual expected = residual_norm(*reference, c, true);
        test::for_each_backend([&](Backend& backend) {
          INFO(rows << " rows of " << width << " as " << name_of(type) << ", output norm "
                    << has_output_norm << ", next " << has_next << ", centered " << centered);
          const Residual actual = residual_norm(backend, c, true);
          const double sum = sum_limit(backend, width);
          const double rounding = std::max(sum, test::rounding_of(type));
          CHECK(test::agree_relatively(actual.hidden, expected.hidden, sum, 0.1));
          CHECK(test::agree_relatively(actual.out, expected.out, rounding, 0.1));
          CHECK(test::agree_relatively(actual.amax, expected.amax, rounding));
          CHECK(actual.nonfinite == expected.nonfinite);
          const Residual parts = residual_norm(backend, c, false);
          CHECK(test::same_bytes(actual.hidden, parts.hidden));
          CHECK(test::same_bytes(actual.out, parts.out));
          CHECK(test::same_bytes(actual.amax, parts.amax));
        });
      }
}

}  // namespace
}  // namespace kvcal
