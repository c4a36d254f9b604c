#include <cmath>
#include <functional>
#include <limits>

#include "support/every_backend.h"
#include "support/near.h"

// Operations that go along segments and keep a state: every law is tested on all of them.
namespace kvcal {
namespace {

/// What one call leaves behind.
struct Scanned {
  std::vector<float> out, state;
};

/// One operation of fixed shape on inputs that are always the same. state holds one state a
/// segment, or is null; it and out are backend memory.
struct ScanOperation {
  std::string what;
  int64_t out_width = 0, out_stride = 0, state_size = 0;
  std::function<void(Backend&, const std::vector<Segment>&, float* state, float* out)> run;
};

using Floats = test::OnBackend<float>;

constexpr int64_t kTokens = 150;
constexpr float kUntouched = -12345.0f;

std::vector<float> input(int64_t width, uint64_t seed, float deviation = 1.0f) {
  return test::normal(kTokens * width, seed, deviation);
}
std::vector<float> negative(int64_t count, uint64_t seed) {
  auto values = test::normal(count, seed);
  for (float& value : values) value = -std::fabs(value) - 0.01f;
  return values;
}

ScanOperation conv(int64_t channels, int64_t kernel, bool silu, bool biased) {
  const int64_t x_stride = channels + 5, out_stride = channels + 3;
  return {
      "causal_conv of " + std::to_string(channels) + " channels, kernel " + std::to_string(kernel),
      channels, out_stride, (kernel - 1) * channels,
      [=](Backend& backend, const std::vector<Segment>& segments, float* state, float* out) {
        const Floats x(backend, input(x_stride, 1)),
            weight(backend, test::normal(channels * kernel, 2)),
            bias(backend, test::normal(channels, 3));
        backend.causal_conv({.x = {x.data(), x_stride},
                             .weight = weight.data(),
                             .bias = biased ? bias.data() : nullptr,
                             .silu = silu,
                             .segments = segments,
                             .channels = channels,
                             .kernel = kernel,
                             .state = state,
                             .out = out,
                             .out_stride = out_stride});
      }};
}

struct SsmShape {
  int64_t heads = 0, head_dim = 0, groups = 0, state_dim = 0;
  bool per_state = false, limited = false;
};

ScanOperation ssm(const SsmShape& s) {
  const int64_t width = s.heads * s.head_dim, shared = s.groups * s.state_dim;
  return {"ssm_scan of " + std::to_string(s.heads) + " heads of " + std::to_string(s.head_dim) +
              ", states " + std::to_string(s.state_dim),
          width, width + 7, width * s.state_dim,
          [=](Backend& backend, const std::vector<Segment>& segments, float* state, float* out) {
            // x, B, C and dt are slices of one projection.
            const int64_t stride = width + 2 * shared + s.heads;
            const Floats all(backend, input(stride, 4)), bias(backend, test::normal(s.heads, 5)),
                d(backend, test::normal(s.heads, 6)),
                a(backend, negative(s.per_state ? s.heads * s.state_dim : s.heads, 7));
            backend.ssm_scan({.x = {all.data(), stride},
                              .dt = {all.data() + width + 2 * shared, stride},
                              .dt_bias = s.limited ? nullptr : bias.data(),
                              .dt_min = s.limited ? 0.5f : 0.0f,
                              .dt_max = s.limited ? 1.0f : std::numeric_limits<float>::infinity(),
                              .a = a.data(),
                              .a_per_state = s.per_state,
                              .b = {all.data() + width, stride},
                              .c = {all.data() + width + shared, stride},
                              .d = s.limited ? nullptr : d.data(),
                              .segments = segments,
                              .heads = s.heads,
                              .head_dim = s.head_dim,
                              .groups = s.groups,
                              .state_dim = s.state_dim,
                              .state = state,
                              .out = out,
                              .out_stride = width + 7});
          }};
}

struct DeltaShape {
  int64_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  bool raw = false, by_key = false;
  float decay_floor = 0.0f;
};

ScanOperation delta(const DeltaShape& s) {
  const int64_t keys = s.k_heads * s.k_dim, width = s.v_heads * s.v_dim;
  const int64_t decays = s.v_heads * (s.by_key ? s.k_dim : 1);
  return {"delta_scan of " + std::to_string(s.v_heads) + " heads, " + std::to_string(s.k_dim) +
              " by " + std::to_string(s.v_dim) + (s.by_key ? ", decays by key" : "") +
              (s.decay_floor < 0.0f ? " above a floor" : ""),
          width, width + 2, width * s.k_dim,
          [=](Backend& backend, const std::vector<Segment>& segments, float* state, float* out) {
            const int64_t stride = 2 * keys + width;
            const Floats all(backend, input(stride, 8)),
                g(backend, s.raw ? input(decays, 9) : negative(kTokens * decays, 9)),
                beta(backend, input(s.v_heads, 10, s.raw ? 1.0f : 0.25f)),
                rate(backend, negative(s.v_heads, 11)), bias(backend, test::normal(decays, 12));
            backend.delta_scan({.q = {all.data(), stride},
                                .k = {all.data() + keys, stride},
                                .v = {all.data() + 2 * keys, stride},
                                .g = {g.data(), decays},
                                .beta = {beta.data(), s.v_heads},
                                .decay_rate = s.raw ? rate.data() : nullptr,
                                .g_bias = s.raw ? bias.data() : nullptr,
                                .decay_floor = s.decay_floor,
                                .decay_per_key = s.by_key,
                                .logistic_beta = s.raw,
                                .beta_range = s.raw && s.v_heads % 2 == 0 ? 2.0f : 1.0f,
                                .segments = segments,
                                .k_heads = s.k_heads,
                                .v_heads = s.v_heads,
                                .k_dim = s.k_dim,
                                .v_dim = s.v_dim,
                                .state = state,
                                .out = out,
                                .out_stride = width + 2});
          }};
}

const std::vector<ScanOperation>& operations() {
  static const std::vector<ScanOperation> all{
      conv(37, 4, true, true),
      conv(600, 4, true, false),
      conv(16, 2, false, true),
      conv(5, 1, false, false),
      ssm({4, 16, 2, 37}),
      ssm({3, 20, 1, 128}),
      ssm({2, 7, 2, 16, false, true}),
      ssm({70, 1, 1, 16, true}),
      ssm({150, 1, 1, 21, true}),
      delta({2, 4, 24, 20, true}),
      delta({1, 2, 33, 70}),
      delta({1, 1, 8, 128, true}),
      delta({2, 2, 24, 20, true, true}),
      delta({1, 2, 33, 70, false, true}),
      delta({2, 2, 24, 20, true, true, -5.0f}),
  };
  return all;
}

/// The operation from one state a segment, or without (empty).
Scanned scan(const ScanOperation& operation, Backend& backend, const std::vector<Segment>& segments,
             const std::vector<float>& states) {
  const Floats state(backend, states),
      out(backend,
          std::vector<float>(static_cast<size_t>(kTokens * operation.out_stride), kUntouched));
  operation.run(backend, segments, states.empty() ? nullptr : state.data(), out.data());
  return {out.values(), state.values()};
}

std::vector<float> rows_of(const ScanOperation& operation, const std::vector<float>& out,
                           int64_t begin, int64_t count) {
  const auto first = out.begin() + begin * operation.out_stride;
  return {first, first + count * operation.out_stride};
}

const std::vector<Segment> kSegments{{.q_begin = 3, .q_count = 1},
                                     {.q_begin = 4, .q_count = 70},
                                     {.q_begin = 80, .q_count = 0},
                                     {.q_begin = 80, .q_count = 66}};

TEST_CASE("scans: every backend agrees with the reference and leaves other rows alone") {
  const auto reference = test::make_backend("reference");
  for (const ScanOperation& operation : operations())
    for (const bool has_state : {false, true}) {
      // A kernel of 1 has a state of no bytes.
      const auto states =
          has_state ? test::normal(4 * operation.state_size, 20) : std::vector<float>{};
      const Scanned expected = scan(operation, *reference, kSegments, states);
      // An output is a sum of as many terms as it has states, of size 1 each.
      const double floor = 2.0 + std::sqrt(static_cast<double>(operation.state_size) /
                                           static_cast<double>(operation.out_width));
      const auto inside = [&](int64_t t, int64_t column) {
        return column < operation.out_width && ((t >= 3 && t < 74) || (t >= 80 && t < 146));
      };
      test::for_each_backend([&](Backend& backend) {
        INFO(operation.what << ", with a state " << has_state);
        const Scanned actual = scan(operation, backend, kSegments, states);
        CHECK(test::agree_relatively(actual.out, expected.out, 1e-5, floor));
        CHECK(test::agree_relatively(actual.state, expected.state, 1e-5, 2.0));
        int64_t touched = 0;
        for (int64_t t = 0; t < kTokens; ++t)
          for (int64_t c = 0; c < operation.out_stride; ++c)
            if (!inside(t, c) &&
                actual.out[static_cast<size_t>(t * operation.out_stride + c)] != kUntouched)
              ++touched;
        CHECK(touched == 0);
      });
    }
}

TEST_CASE("scans: going on from a state gives the bytes of one run") {
  for (const ScanOperation& operation : operations())
    test::for_every_backend([&](Backend& backend) {
      INFO(operation.what << " on " << backend.name());
      const auto states = test::normal(operation.state_size, 20);
      const Scanned whole = scan(operation, backend, {{.q_begin = 5, .q_count = 80}}, states);
      Scanned part{{}, states};
      int64_t begin = 5;
      for (const int64_t count : {1, 2, 1, 65, 0, 11}) {
        part = scan(operation, backend, {{.q_begin = begin, .q_count = count}}, part.state);
        INFO("rows " << begin << " to " << begin + count);
        CHECK(test::same_bytes(rows_of(operation, part.out, begin, count),
                               rows_of(operation, whole.out, begin, count)));
        begin += count;
      }
      CHECK(test::same_bytes(part.state, whole.state));
    });
}

TEST_CASE("scans: no state is a state of zeros") {
  for (const ScanOperation& operation : operations())
    test::for_every_backend([&](Backend& backend) {
      INFO(operation.what << " on " << backend.name());
      const std::vector<float> zeros(static_cast<size_t>(4 * operation.state_size));
      CHECK(test::same_bytes(scan(operation, backend, kSegments, {}).out,
                             scan(operation, backend, kSegments, zeros).out));
    });
}

TEST_CASE("scans: a segment's bytes depend neither on the others nor on the threads") {
  for (const ScanOperation& operation : operations()) {
    const auto size = static_cast<std::ptrdiff_t>(operation.state_size);
    const auto states = test::normal(4 * operation.state_size, 20);
    const Scanned one = scan(operation, *test::make_backend("cpu"), kSegments, states);
    for (const int threads : {2, 3}) {
      INFO(operation.what << ", " << threads << " threads");
      const Scanned more = scan(operation, *test::make_backend("cpu", threads), kSegments, states);
      CHECK(test::same_bytes(more.out, one.out));
      CHECK(test::same_bytes(more.state, one.state));
    }
    test::for_every_backend([&](Backend& backend) {
      const Scanned whole = scan(operation, backend, kSegments, states);
      for (size_t s = 0; s < kSegments.size(); ++s) {
        INFO(operation.what << " on " << backend.name() << ", segment " << s);
        const auto first = static_cast<std::ptrdiff_t>(s) * size;
        const Segment& segment = kSegments[s];
        const Scanned alone = scan(operation, backend, {segment},
                                   {states.begin() + first, states.begin() + first + size});
        CHECK(test::same_bytes(rows_of(operation, alone.out, segment.q_begin, segment.q_count),
                               rows_of(operation, whole.out, segment.q_begin, segment.q_count)));
        CHECK(test::same_bytes(alone.state,
                               {whole.state.begin() + first, whole.state.begin() + first + size}));
      }
    });
  }
}

/// One channel of one state, B, C and A's magnitude 1, over rows of x: what it writes over them.
std::vector<float> one_channel(Backend& backend, const std::vector<float>& x,
                               const std::vector<float>& dt, const std::vector<Segment>& segments,
                               float dt_min = 0.0f, float dt_max = INFINITY) {
  const Floats out(backend, x), steps(backend, dt), rate(backend, {-1.0f}),
      ones(backend, std::vector<float>(x.size(), 1.0f));
  backend.ssm_scan({.x = {out.data(), 1},
                    .dt = {steps.data(), 1},
                    .dt_min = dt_min,
                    .dt_max = dt_max,
                    .a = rate.data(),
                    .b = {ones.data(), 1},
                    .c = {ones.data(), 1},
                    .segments = segments,
                    .heads = 1,
                    .head_dim = 1,
                    .groups = 1,
                    .state_dim = 1,
                    .out = out.data()});
  return out.values();
}

TEST_CASE("ssm_scan: may write over x; steps far from zero stay numbers") {
  test::for_every_backend([&](Backend& backend) {
    // softplus 0, ln 2, 200
    const auto out =
        one_channel(backend, {1.0f, 2.0f, 3.0f}, {-200.0f, 0.0f, 200.0f}, {{.q_count = 3}});
    CHECK(test::agree_relatively(out, std::vector<float>{0.0f, 1.38629436f, 600.0f}, 1e-6, 1e-30));
  });
}

TEST_CASE("ssm_scan: the softplus keeps its digits from end to end") {
  // One row a segment, x 1, no state before: out is the step size itself.
  std::vector<float> dt;
  for (float x = -87.0f; x <= 100.0f; x += 0.0625f) dt.push_back(x);
  std::vector<Segment> segments;
  for (size_t t = 0; t < dt.size(); ++t)
    segments.push_back({.q_begin = static_cast<int64_t>(t), .q_count = 1});
  const std::vector<float> ones(dt.size(), 1.0f);
  const auto expected = one_channel(*test::make_backend("reference"), ones, dt, segments);
  test::for_every_backend([&](Backend& backend) {
    CHECK(test::agree_relatively(one_channel(backend, ones, dt, segments), expected, 5e-7));
  });
}

TEST_CASE("scans: gates that are not numbers reach the output") {
  // A model with broken weights must be found out, not calibrated.
  const std::vector<Segment> segments{{.q_count = 1}};
  test::for_every_backend([&](Backend& backend) {
    INFO(backend.name());
    CHECK(std::isnan(one_channel(backend, {1.0f}, {NAN}, segments, 0.25f, 0.5f)[0]));
    const Floats one(backend, {1.0f}), nan(backend, {NAN}), rate(backend, {-1.0f}),
        state(backend, {1.0f}), out(backend, {0.0f});
    backend.delta_scan({.q = {one.data(), 1},
                        .k = {one.data(), 1},
                        .v = {one.data(), 1},
                        .g = {nan.data(), 1},
                        .beta = {one.data(), 1},
                        .decay_rate = rate.data(),
                        .segments = segments,
                        .k_heads = 1,
                        .v_heads = 1,
                        .k_dim = 1,
                        .v_dim = 1,
                        .state = state.data(),
                        .out = out.data()});
    CHECK(std::isnan(out.values()[0]));
    CHECK(std::isnan(state.values()[0]));
  });
}

}  // namespace
}  // namespace kvcal
