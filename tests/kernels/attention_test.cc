#include <cmath>
#include <limits>

#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

struct AttentionCase {
  std::string what;
  std::vector<Segment> segments;
  int64_t heads = 1, kv_heads = 1, head_dim = 64;
  KvDType kv_dtype = KvDType::kFloat32;
  int64_t sliding_window = 0;
  ComputeType out_type = ComputeType::kFloat32;
  int64_t extra_stride = 0;
  float deviation = 1.0f;
  int64_t v_head_dim = 0;
  float softcap = 0.0f;
  bool sinks = false;

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t q_rows() const {
    int64_t rows = 0;
    for (const Segment& s : segments) rows = std::max(rows, s.q_begin + s.q_count);
    return rows;
  }
  int64_t kv_rows() const {
    int64_t rows = 0;
    for (const Segment& s : segments) rows = std::max(rows, s.kv_begin + s.kv_count);
    return rows;
  }
};

std::vector<float> head_scales(int64_t heads, float first) {
  std::vector<float> scales;
  for (int64_t h = 0; h < heads; ++h)
    scales.push_back(first * (1.0f + 0.37f * static_cast<float>(h)));
  return scales;
}

/// The cache of a case, written by the backend under test.
test::OnBackend<uint8_t> cache(Backend& backend, const AttentionCase& c, int64_t dim, uint64_t seed,
                               const std::vector<float>& scales) {
  const int64_t count = c.kv_rows() * c.kv_heads * dim;
  const test::OnBackend<float> x(backend, test::normal(count, seed, c.deviation));
  const test::OnBackend<float> on_backend(backend, scales);
  test::OnBackend<uint8_t> out(
      backend, std::vector<uint8_t>(static_cast<size_t>(count * bytes_per_element(c.kv_dtype))));
  backend.store_kv({.x = {.data = x.data(),
                          .tokens = c.kv_rows(),
                          .heads = c.kv_heads,
                          .head_dim = dim,
                          .row_stride = c.kv_heads * dim},
                    .dtype = c.kv_dtype,
                    .scales = on_backend.data(),
                    .out = out.data()});
  return out;
}

std::vector<float> attend(Backend& backend, const AttentionCase& c) {
  const int64_t stride = c.heads * c.head_dim + c.extra_stride;
  const auto k_scales = head_scales(c.kv_heads, 0.011f), v_scales = head_scales(c.kv_heads, 0.02f);
  const test::OnBackend<float> q(backend, test::normal(c.q_rows() * stride, 1, c.deviation));
  const auto k = cache(backend, c, c.head_dim, 2, k_scales);
  const auto v = cache(backend, c, c.value_dim(), 3, v_scales);
  const test::OnBackend<float> k_scale(backend, k_scales), v_scale(backend, v_scales);
  const size_t count = static_cast<size_t>(c.q_rows() * c.heads * c.value_dim());
  const test::OnBackend<float> sinks(backend, test::normal(c.heads, 4, 2.0f));
  const test::OnBackend<std::byte> out(backend,
                                       std::vector<std::byte>(count * bytes_of(c.out_type)));
  backend.attention({.q = q.data(),
                     .q_row_stride = stride,
                     .k = k.data(),
                     .v = v.data(),
                     .kv_dtype = c.kv_dtype,
                     .k_scales = k_scale.data(),
                     .v_scales = v_scale.data(),
                     .segments = c.segments,
                     .heads = c.heads,
                     .kv_heads = c.kv_heads,
                     .head_dim = c.head_dim,
                     .v_head_dim = c.v_head_dim,
                     .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                     .softcap = c.softcap,
                     .sinks = c.sinks ? sinks.data() : nullptr,
                     .sliding_window = c.sliding_window,
                     .out_type = c.out_type,
                     .out = out.data()});
  return test::to_floats(out.values(), c.out_type);
}

std::vector<Segment> prefill(std::vector<int64_t> lengths) {
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t n : lengths) {
    segments.push_back({.q_begin = begin, .q_count = n, .kv_begin = begin, .kv_count = n});
    begin += n;
  }
  return segments;
}

const std::vector<AttentionCase> kCases{
    {.what = "one token", .segments = prefill({1})},
    {.what = "packed", .segments = prefill({5, 1, 130, 33}), .heads = 6, .kv_heads = 2},
    {.what = "no sharing", .segments = prefill({71}), .heads = 2, .kv_heads = 2, .head_dim = 80},
    {.what = "odd width", .segments = prefill({67}), .heads = 3, .kv_heads = 1, .head_dim = 7},
    {.what = "narrow", .segments = prefill({40}), .heads = 8, .kv_heads = 4, .head_dim = 8},
    {.what = "wide", .segments = prefill({65}), .heads = 7, .kv_heads = 1, .head_dim = 256},
    {.what = "sixty heads on one",
     .segments = prefill({9}),
     .heads = 60,
     .kv_heads = 1,
     .head_dim = 16},
    {.what = "strided q",
     .segments = prefill({20, 30}),
     .heads = 4,
     .kv_heads = 2,
     .extra_stride = 96},
    {.what = "empty segment", .segments = prefill({3, 0, 4}), .heads = 2, .kv_heads = 1},
    {.what = "decode",
     .segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = 200},
                  {.q_begin = 1, .q_count = 1, .kv_begin = 200, .kv_count = 1},
                  {.q_begin = 2, .q_count = 3, .kv_begin = 201, .kv_count = 66}},
     .heads = 9,
     .kv_heads = 3},
    {.what = "window",
     .segments = prefill({150, 20}),
     .heads = 4,
     .kv_heads = 2,
     .sliding_window = 17},
    {.what = "window of one", .segments = prefill({70}), .sliding_window = 1},
    {.what = "window and history",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 0, .kv_count = 300}},
     .heads = 2,
     .kv_heads = 1,
     .sliding_window = 130},
    {.what = "large scores",
     .segments = prefill({90}),
     .heads = 2,
     .kv_heads = 1,
     .deviation = 6.0f},
    {.what = "narrower values",
     .segments = prefill({70, 9}),
     .heads = 4,
     .kv_heads = 4,
     .head_dim = 192,
     .v_head_dim = 128},
    {.what = "much wider values",
     .segments = prefill({50}),
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 4,
     .v_head_dim = 77},
    {.what = "latent",
     .segments = {{.q_begin = 0, .q_count = 5, .kv_begin = 0, .kv_count = 130}},
     .heads = 16,
     .kv_heads = 1,
     .head_dim = 576,
     .v_head_dim = 512},
    {.what = "softcap", .segments = prefill({90, 5}), .heads = 4, .kv_heads = 2, .softcap = 0.8f},
    {.what = "softcap far above the scores",
     .segments = prefill({90}),
     .heads = 2,
     .kv_heads = 1,
     .softcap = 50.0f},
    {.what = "softcap and window, scores far beyond",
     .segments = prefill({150}),
     .heads = 2,
     .kv_heads = 1,
     .sliding_window = 17,
     .deviation = 6.0f,
     .softcap = 5.0f},
    {.what = "sinks", .segments = prefill({90, 1, 5}), .heads = 6, .kv_heads = 2, .sinks = true},
    {.what = "sinks below large scores",
     .segments = prefill({90}),
     .heads = 2,
     .kv_heads = 1,
     .deviation = 6.0f,
     .sinks = true},
    {.what = "all of it",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 0, .kv_count = 300}},
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .sliding_window = 130,
     .v_head_dim = 40,
     .softcap = 1.5f,
     .sinks = true},
};

TEST_CASE("attention: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const AttentionCase& c : kCases) {
    const auto expected = attend(*reference, c);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.what);
      const auto actual = attend(backend, c);
      CHECK(test::agree_as_sums(actual, expected));
      CHECK(test::largest_error(actual, expected) < 3e-5 * c.deviation);
    });
  }
}

TEST_CASE("attention: reads every kind of cache and writes every type") {
  const auto reference = test::make_backend("reference");
  for (const int64_t head_dim : {64, 21})
    for (const KvDType dtype : {KvDType::kFloat16, KvDType::kBFloat16, KvDType::kFp8E4m3,
                                KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
      for (const ComputeType type :
           {ComputeType::kFloat32, ComputeType::kBFloat16, ComputeType::kFloat16}) {
        const AttentionCase c{.what = std::string(name_of(dtype)),
                              .segments = prefill({37, 70}),
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = head_dim,
                              .kv_dtype = dtype,
                              .out_type = type};
        const auto expected = attend(*reference, c);
        test::for_each_backend([&](Backend& backend) {
          INFO(c.what << " cache, " << name_of(type) << " out");
          CHECK(test::agree_as_sums(attend(backend, c), expected));
        });
      }
}

TEST_CASE("attention: a query's bytes depend neither on its neighbours nor on the threads") {
  AttentionCase c{.what = "split",
                  .segments = prefill({200}),
                  .heads = 6,
                  .kv_heads = 2,
                  .kv_dtype = KvDType::kFp8E4m3};
  for (const int64_t window : {0, 50, 51}) {
    c.sliding_window = window;
    if (window == 51) {
      c.v_head_dim = 40;
      c.softcap = 1.5f;
      c.sinks = true;
    }
    const auto expected = attend(*test::make_backend("cpu"), c);
    const int64_t row = c.heads * c.value_dim();
    for (const int threads : {1, 2, 3}) {
      const auto backend = test::make_backend("cpu", threads);
      CHECK(test::same_bytes(attend(*backend, c), expected));
      // The same queries, in pieces: q rows [begin, end) with all keys up to theirs.
      AttentionCase piece = c;
      for (const auto& [begin, end] :
           {std::pair<int64_t, int64_t>{0, 1}, {63, 64}, {64, 65}, {90, 107}, {199, 200}}) {
        piece.segments = {
            {.q_begin = begin, .q_count = end - begin, .kv_begin = 0, .kv_count = end}};
        const auto actual = attend(*backend, piece);
        INFO("queries " << begin << " to " << end << ", window " << window);
        CHECK(test::same_bytes(
            std::vector<float>(actual.begin() + begin * row, actual.begin() + end * row),
            std::vector<float>(expected.begin() + begin * row, expected.begin() + end * row)));
      }
    }
  }
}

TEST_CASE("attention: a sink far above all scores leaves nothing, far below it changes nothing") {
  constexpr int64_t kTokens = 100, kDim = 16;
  const auto q = test::normal(kTokens * kDim, 1), k = test::normal(kTokens * kDim, 2);
  const auto v = test::normal(kTokens * kDim, 3);
  const auto segments = prefill({kTokens});
  for (const std::string name : {"cpu", "reference"}) {
    const auto backend = test::make_backend(name);
    const auto run = [&](const float* sinks) {
      std::vector<float> out(q.size());
      backend->attention({.q = q.data(),
                          .q_row_stride = kDim,
                          .k = k.data(),
                          .v = v.data(),
                          .segments = segments,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = kDim,
                          .sinks = sinks,
                          .sliding_window = 70,
                          .out = out.data()});
      return out;
    };
    const float high = 1e4f, low = -1e4f, none = -std::numeric_limits<float>::infinity();
    CHECK(run(&high) == std::vector<float>(q.size()));
    CHECK(test::same_bytes(run(&low), run(nullptr)));
    CHECK(test::same_bytes(run(&none), run(nullptr)));
  }
}

TEST_CASE("attention: NaN in a key reaches every query that sees it, and no other") {
  const auto backend = test::make_backend("cpu");
  constexpr int64_t kTokens = 100, kDim = 16, kBad = 70;
  const auto q = test::normal(kTokens * kDim, 1), v = test::normal(kTokens * kDim, 3);
  auto k = test::normal(kTokens * kDim, 2);
  k[kBad * kDim + 3] = std::numeric_limits<float>::quiet_NaN();
  const auto segments = prefill({kTokens});
  std::vector<float> out(q.size());
  const float sink = 1.0f;
  for (const bool capped_with_sink : {false, true}) {
    backend->attention({.q = q.data(),
                        .q_row_stride = kDim,
                        .k = k.data(),
                        .v = v.data(),
                        .segments = segments,
                        .heads = 1,
                        .kv_heads = 1,
                        .head_dim = kDim,
                        .softcap = capped_with_sink ? 2.0f : 0.0f,
                        .sinks = capped_with_sink ? &sink : nullptr,
                        .out = out.data()});
    for (int64_t t = 0; t < kTokens; ++t)
      CHECK(std::isnan(out[static_cast<size_t>(t * kDim)]) == (t >= kBad));
  }
}

}  // namespace
}  // namespace kvcal
