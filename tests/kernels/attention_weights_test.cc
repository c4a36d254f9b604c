// Softmax weights of single queries.
#include <cmath>

#include "kernels/attention_case.h"

namespace kvcal {
namespace {

struct WeightsCase {
  std::string what;
  std::vector<KeySpan> seen;
  int64_t heads = 4, kv_heads = 2, head_dim = 32, v_head_dim = 32;
  float softcap = 0.0f;
  bool has_sinks = false;
  bool has_slopes = false;
  int64_t relative_rank = 0, relative_extent = 0;
  float deviation = 1.0f;

  int64_t keys() const {
    int64_t end = 0;
    for (const KeySpan& one : seen) end = std::max(end, one.end);
    return end;
  }
  int64_t stride() const { return keys() + 3; }
  int64_t rows() const { return std::ssize(seen) * heads; }
  std::vector<float> q() const { return test::normal(rows() * head_dim, 1, deviation); }
  std::vector<float> k() const { return test::normal(keys() * kv_heads * head_dim, 2, deviation); }
  std::vector<float> v() const { return test::normal(keys() * kv_heads * v_head_dim, 3); }
  std::vector<float> sinks() const { return test::normal(heads, 4, 2.0f); }
  std::vector<float> states() const { return test::normal(rows() * relative_rank, 5); }
  std::vector<float> table() const { return test::normal(relative_extent * relative_rank, 6); }
  RelativeLogits relative(const float* states, const float* table) const {
    if (relative_rank == 0) return {};
    return {.states = states, .table = table, .rank = relative_rank, .extent = relative_extent};
  }
};

const std::vector<WeightsCase> kCases{
    {.what = "causal", .seen = {{0, 1}, {0, 17}, {0, 100}, {0, 300}}},
    {.what = "window", .seen = {{40, 41}, {3, 70}, {200, 233}}, .heads = 6, .kv_heads = 2},
    {.what = "more queries than lanes",
     .seen = std::vector<KeySpan>(30, KeySpan{2, 90}),
     .heads = 9,
     .kv_heads = 3,
     .head_dim = 64,
     .v_head_dim = 64},
    {.what = "softcap", .seen = {{0, 50}}, .softcap = 20.0f, .deviation = 3.0f},
    {.what = "sinks", .seen = {{0, 1}, {5, 60}}, .has_sinks = true},
    {.what = "slopes", .seen = {{0, 1}, {5, 60}, {0, 200}}, .has_slopes = true},
    {.what = "slopes, softcap and sinks",
     .seen = {{0, 50}},
     .softcap = 3.0f,
     .has_sinks = true,
     .has_slopes = true},
    {.what = "one head, odd widths",
     .seen = {{0, 33}, {1, 2}},
     .heads = 1,
     .kv_heads = 1,
     .head_dim = 7,
     .v_head_dim = 5},
    {.what = "relative logits",
     .seen = {{0, 1}, {0, 17}, {30, 100}, {0, 300}},
     .relative_rank = 3,
     .relative_extent = 60},
    {.what = "large scores", .seen = {{0, 400}}, .deviation = 8.0f},
};

struct Weights {
  std::vector<float> logs, out;
};

constexpr float kPoison = 12345.0f;

Weights weigh(Backend& backend, const WeightsCase& c) {
  const test::OnBackend<float> q(backend, c.q()), k(backend, c.k()), v(backend, c.v()),
      sinks(backend, c.sinks()), slopes(backend, test::slopes_of(c.heads)),
      states(backend, c.states()), table(backend, c.table());
  const test::OnBackend<float> logs(
      backend, std::vector<float>(static_cast<size_t>(c.rows() * c.stride()), kPoison));
  const test::OnBackend<float> out(
      backend, std::vector<float>(static_cast<size_t>(c.rows() * c.v_head_dim), kPoison));
  backend.attention_weights({.q = q.data(),
                             .k = k.data(),
                             .v = v.data(),
                             .seen = c.seen,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim,
                             .v_head_dim = c.v_head_dim,
                             .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                             .softcap = c.softcap,
                             .sinks = c.has_sinks ? sinks.data() : nullptr,
                             .slopes = c.has_slopes ? slopes.data() : nullptr,
                             .relative = c.relative(states.data(), table.data()),
                             .weights_stride = c.stride(),
                             .log_weights = logs.data(),
                             .out = out.data()});
  return {logs.values(), out.values()};
}

TEST_CASE(
    "attention_weights: the reference's weights add up to one, and attend as attention does") {
  for (const WeightsCase& c : kCases) {
    const auto backend = test::make_backend("reference");
    const Weights found = weigh(*backend, c);
    INFO(c.what);
    for (int64_t row = 0; row < c.rows(); ++row) {
      const KeySpan& seen = c.seen[static_cast<size_t>(row / c.heads)];
      const int64_t count = seen.end - seen.begin + (c.has_sinks ? 1 : 0);
      double sum = 0.0;
      for (int64_t i = 0; i < c.stride(); ++i) {
        const float log = found.logs[static_cast<size_t>(row * c.stride() + i)];
        if (i < count)
          sum += std::exp(static_cast<double>(log));
        else
          REQUIRE(log == kPoison);
      }
      REQUIRE(std::fabs(sum - 1.0) < 1e-5);
    }
    std::vector<Segment> segments;
    for (int64_t query = 0; query < std::ssize(c.seen); ++query) {
      const KeySpan& seen = c.seen[static_cast<size_t>(query)];
      segments.push_back({.q_begin = query,
                          .q_count = 1,
                          .kv_begin = seen.begin,
                          .kv_count = seen.end - seen.begin});
    }
    const auto q = c.q(), k = c.k(), v = c.v(), sinks = c.sinks(),
               slopes = test::slopes_of(c.heads), states = c.states(), table = c.table();
    std::vector<float> attended(found.out.size());
    backend->attention({.q = q.data(),
                        .q_row_stride = c.heads * c.head_dim,
                        .k = k.data(),
                        .v = v.data(),
                        .segments = segments,
                        .heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .head_dim = c.head_dim,
                        .v_head_dim = c.v_head_dim,
                        .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                        .softcap = c.softcap,
                        .sinks = c.has_sinks ? sinks.data() : nullptr,
                        .slopes = c.has_slopes ? slopes.data() : nullptr,
                        .relative = c.relative(states.data(), table.data()),
                        .out = attended.data()});
    for (size_t i = 0; i < attended.size(); ++i)
      REQUIRE(std::fabs(attended[i] - found.out[i]) < 1e-6f);
  }
}

TEST_CASE("attention_weights: every backend gives the reference's weights") {
  for (const WeightsCase& c : kCases) {
    const Weights expected = weigh(*test::make_backend("reference"), c);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.what << " on " << backend.description());
      const Weights found = weigh(backend, c);
      // Scores are sums of products in float32: their error grows with their size.
      const double limit = 2e-6 * c.deviation * c.deviation * std::sqrt(c.head_dim);
      for (size_t i = 0; i < expected.logs.size(); ++i)
        REQUIRE(std::fabs(found.logs[i] - expected.logs[i]) <=
                std::max(1e-6, limit) + 1e-6 * std::fabs(expected.logs[i]));
      for (size_t i = 0; i < expected.out.size(); ++i)
        REQUIRE(std::fabs(found.out[i] - expected.out[i]) <= std::max(4e-6, 4 * limit));
    });
  }
}

TEST_CASE("attention_weights: a query's bytes do not depend on those beside it") {
  const WeightsCase all{.what = "all", .seen = {{0, 40}, {0, 90}, {7, 130}}};
  test::for_each_backend([&](Backend& backend) {
    INFO(backend.description());
    const Weights together = weigh(backend, all);
    WeightsCase first = all;
    first.seen.resize(1);
    const Weights alone = weigh(backend, first);
    // The rows of K and V are drawn in order, so the first ones are the same.
    for (int64_t head = 0; head < all.heads; ++head)
      for (int64_t i = 0; i < 40; ++i)
        REQUIRE(alone.logs[static_cast<size_t>(head * first.stride() + i)] ==
                together.logs[static_cast<size_t>(head * all.stride() + i)]);
  });
}

}  // namespace
}  // namespace kvcal
