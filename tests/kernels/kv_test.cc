#include <cmath>
#include <limits>
#include <tuple>

#include "quant/calibration.h"
#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr int64_t kBins = MagnitudeHistogram::kBins;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

HeadsView heads_of(float* x, int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride) {
  return {.data = x, .tokens = tokens, .heads = heads, .head_dim = head_dim, .row_stride = stride};
}

/// Every magnitude there is: all exponents, some mantissas, both signs, zeros, NaN and infinity.
std::vector<float> hard_values(int64_t count) {
  std::vector<float> values = test::normal(count, 9);
  const float special[] = {0.0f,       -0.0f,    kNan,       -kNan,    kInfinity,   -kInfinity,
                           0x1p-149f,  -1e-40f,  3.4e38f,    -448.0f,  448.00003f,  464.0f,
                           464.0001f,  240.0f,   248.0f,     57344.0f, 61440.0f,    -65520.0f,
                           65519.996f, 0x1p-25f, 0x1.8p-25f, 0x1p-10f, -0x1.8p-10f, 0x1p-24f};
  for (size_t i = 0; i < values.size(); i += 3)
    values[i] = i % 2 == 0 ? special[i / 6 % std::size(special)]
                           : std::ldexp(values[i], static_cast<int>(i / 6 % 280) - 140);
  return values;
}

struct Stored {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> saturated;
};

Stored store(Backend& backend, const std::vector<float>& values, int64_t tokens, int64_t heads,
             int64_t head_dim, int64_t stride, KvDType dtype, const std::vector<float>& scales) {
  const test::OnBackend<float> x(backend, values), on_backend(backend, scales);
  const test::OnBackend<uint8_t> out(
      backend, std::vector<uint8_t>(
                   static_cast<size_t>(tokens * heads * head_dim * bytes_per_element(dtype))));
  const test::OnBackend<uint64_t> saturated(
      backend, std::vector<uint64_t>(static_cast<size_t>(heads), 5));  // added to
  backend.store_kv({.x = heads_of(x.data(), tokens, heads, head_dim, stride),
                    .dtype = dtype,
                    .scales = is_fp8(dtype) ? on_backend.data() : nullptr,
                    .out = out.data(),
                    .saturated = saturated.data()});
  return {out.values(), saturated.values()};
}

TEST_CASE("store_kv: every backend writes the reference's bytes") {
  const auto reference = test::make_backend("reference");
  const std::vector<float> scales{0.011f, 0.5f, 3.0f};
  for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                              KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
    for (const int64_t head_dim : {80, 64, 8, 7})
      for (const auto& [tokens, padding] :
           {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {301, 5}, {301, 8}}) {
        const int64_t stride = 3 * head_dim + padding;
        const auto values = hard_values(tokens * stride);
        const Stored expected =
            store(*reference, values, tokens, 3, head_dim, stride, dtype, scales);
        test::for_each_backend([&](Backend& backend) {
          INFO(name_of(dtype) << ", head_dim " << head_dim << ", " << tokens << " tokens");
          const Stored actual = store(backend, values, tokens, 3, head_dim, stride, dtype, scales);
          CHECK(test::same_bytes(actual.bytes, expected.bytes));
          CHECK(test::same_bytes(actual.saturated, expected.saturated));
        });
      }
}

TEST_CASE("store_kv: every float32 with a short mantissa is rounded as the reference does") {
  // 12 mantissa bits reach every halfway point of every format, and their neighbours.
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x100000u; ++bits) values.push_back(float_of(bits << 12));
  const int64_t count = static_cast<int64_t>(values.size());
  const auto reference = test::make_backend("reference");
  for (const KvDType dtype : {KvDType::kFloat16, KvDType::kBFloat16, KvDType::kFp8E4m3,
                              KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2}) {
    const Stored expected = store(*reference, values, 1, 1, count, count, dtype, {1.0f});
    for (const std::string& name : test::backend_names()) {
      INFO(name << ", " << name_of(dtype));
      const Stored actual =
          store(*test::make_backend(name), values, 1, 1, count, count, dtype, {1.0f});
      CHECK(test::same_bytes(actual.bytes, expected.bytes));
      CHECK(actual.saturated == expected.saturated);
    }
  }
}

TEST_CASE("store_kv: counts what is over the largest code, and neither NaN nor infinity") {
  const std::vector<float> values{448.0f, 448.1f, -900.0f, kInfinity, kNan, 0.0f, 447.0f, -448.0f};
  for (const std::string& name : test::backend_names()) {
    const Stored stored =
        store(*test::make_backend(name), values, 1, 1, 8, 8, KvDType::kFp8E4m3, {1.0f});
    CHECK(stored.saturated == std::vector<uint64_t>{5 + 2});
    CHECK(stored.bytes == std::vector<uint8_t>{0x7e, 0x7e, 0xfe, 0x7e, 0x7f, 0x00, 0x7e, 0xfe});
  }
}

TEST_CASE("load_kv: every backend reads every code as the reference does") {
  const auto reference = test::make_backend("reference");
  for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                              KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
    for (const ComputeType type : test::kComputeTypes)
      // The last two are inputs of products: a scale a group, and few rows of more heads.
      for (const auto& [rows, heads, head_dim] : {std::tuple<int64_t, int64_t, int64_t>{0, 3, 8},
                                                  {1, 3, 7},
                                                  {40, 3, 80},
                                                  {180, 3, 576},
                                                  {1, 1000, 96},
                                                  {5, 700, 16}}) {
        std::vector<float> scales;
        for (int64_t h = 0; h < heads; ++h) scales.push_back(0.011f + 0.3f * static_cast<float>(h));
        std::vector<uint8_t> bytes(
            static_cast<size_t>(rows * heads * head_dim * bytes_per_element(dtype)));
        for (size_t i = 0; i < bytes.size(); ++i)
          bytes[i] = static_cast<uint8_t>(i * 7 + i / 256 * 3);  // all codes, in all places
        const auto run = [&](Backend& backend) {
          const test::OnBackend<uint8_t> x(backend, bytes);
          const test::OnBackend<float> scale(backend, scales);
          const test::OnBackend<std::byte> out(
              backend, std::vector<std::byte>(static_cast<size_t>(rows * heads * head_dim) *
                                              bytes_of(type)));
          backend.load_kv({.x = x.data(),
                           .dtype = dtype,
                           .scales = is_fp8(dtype) ? scale.data() : nullptr,
                           .rows = rows,
                           .heads = heads,
                           .head_dim = head_dim,
                           .out_type = type,
                           .out = out.data()});
          auto values = test::to_floats(out.values(), type);
          for (float& value : values)
            if (std::isnan(value)) value = 12345.0f;  // a NaN's payload carries no meaning
          return values;
        };
        const auto expected = run(*reference);
        test::for_each_backend([&](Backend& backend) {
          INFO(name_of(dtype) << " as " << name_of(type) << ", " << rows << " x " << heads << " x "
                              << head_dim);
          CHECK(test::same_bytes(run(backend), expected));
        });
      }
}

struct Observed {
  std::vector<float> extremes;
  std::vector<int32_t> first_nonfinite;
  std::vector<uint64_t> histogram;
};

Observed observe(Backend& backend, const std::vector<float>& values,
                 const std::vector<Segment>& segments, int64_t tokens, int64_t heads,
                 int64_t head_dim, int64_t stride, bool with_histogram = true) {
  const test::OnBackend<float> x(backend, values);
  const test::OnBackend<ObservedRange> ranges(
      backend, std::vector<ObservedRange>(segments.size() * static_cast<size_t>(heads)));
  const test::OnBackend<uint64_t> histogram(
      backend, std::vector<uint64_t>(static_cast<size_t>(heads * kBins), 2));
  backend.observe_kv({.x = heads_of(x.data(), tokens, heads, head_dim, stride),
                      .segments = segments,
                      .ranges = ranges.data(),
                      .histogram = with_histogram ? histogram.data() : nullptr});
  Observed observed{.extremes = {}, .first_nonfinite = {}, .histogram = histogram.values()};
  for (const ObservedRange& range : ranges.values()) {
    observed.extremes.push_back(range.min);
    observed.extremes.push_back(range.max);
    observed.first_nonfinite.push_back(range.first_nonfinite);
  }
  return observed;
}

TEST_CASE("observe_kv: every backend sees the reference's extremes, bins and first bad token") {
  const auto reference = test::make_backend("reference");
  const std::vector<Segment> segments{{.q_begin = 0, .q_count = 9},
                                      {.q_begin = 9, .q_count = 0},
                                      {.q_begin = 9, .q_count = 1},
                                      {.q_begin = 10, .q_count = 390}};
  for (const int64_t head_dim : {80, 64, 8, 7})
    for (const auto& [hard, padding] :
         {std::pair<bool, int64_t>{false, 5}, {true, 5}, {false, 8}, {true, 8}}) {
      const int64_t stride = 3 * head_dim + padding, tokens = 400;
      const auto values =
          hard ? hard_values(tokens * stride) : test::normal(tokens * stride, 3, 20.0f);
      const Observed expected = observe(*reference, values, segments, tokens, 3, head_dim, stride);
      test::for_each_backend([&](Backend& backend) {
        INFO("head_dim " << head_dim << ", hard " << hard);
        const Observed actual = observe(backend, values, segments, tokens, 3, head_dim, stride);
        CHECK(test::same_bytes(actual.extremes, expected.extremes));
        CHECK(test::same_bytes(actual.first_nonfinite, expected.first_nonfinite));
        CHECK(test::same_bytes(actual.histogram, expected.histogram));
      });
    }
}

TEST_CASE("enter_cache: V without dimensions has an empty range and leaves K as it is") {
  for (const std::string& name : test::backend_names()) {
    const auto backend = test::make_backend(name);
    const test::OnBackend<float> x(*backend, test::normal(7 * 12, 3));
    const std::vector<ObservedRange> none(2);
    const test::OnBackend<ObservedRange> k(*backend, none), v(*backend, none),
        alone(*backend, none);
    const std::vector<Segment> segments{{.q_begin = 0, .q_count = 4}, {.q_begin = 4, .q_count = 3}};
    const HeadsView keys = heads_of(x.data(), 7, 1, 12, 12);
    backend->enter_cache({.k = {.x = keys, .ranges = k.data()},
                          .v = {.x = heads_of(x.data() + 12, 7, 1, 0, 12), .ranges = v.data()},
                          .segments = segments});
    backend->observe_kv({.x = keys, .segments = segments, .ranges = alone.data()});
    INFO(name);
    for (size_t i = 0; i < segments.size(); ++i) {
      CHECK(k.values()[i].max == alone.values()[i].max);
      CHECK(k.values()[i].min == alone.values()[i].min);
      CHECK(v.values()[i].min > v.values()[i].max);
      CHECK(v.values()[i].first_nonfinite < 0);
    }
  }
}

TEST_CASE("observe_kv: without a histogram the extremes are the same") {
  const int64_t tokens = 400, head_dim = 16, stride = 3 * head_dim + 5;
  const auto values = hard_values(tokens * stride);
  const std::vector<Segment> segments{{.q_begin = 0, .q_count = 9},
                                      {.q_begin = 10, .q_count = 390}};
  test::for_each_backend([&](Backend& backend) {
    const Observed with = observe(backend, values, segments, tokens, 3, head_dim, stride);
    const Observed without = observe(backend, values, segments, tokens, 3, head_dim, stride, false);
    CHECK(test::same_bytes(without.extremes, with.extremes));
    CHECK(test::same_bytes(without.first_nonfinite, with.first_nonfinite));
    for (const uint64_t count : without.histogram) CHECK(count == 2);  // as it was
  });
}

TEST_CASE("observe_kv: finite values of every magnitude are counted as the reference does") {
  constexpr int64_t kTokens = 300, kHeadDim = 37;
  const std::vector<Segment> segments{{.q_begin = 0, .q_count = kTokens}};
  const auto reference = test::make_backend("reference");
  // Octaves that the magnitudes spread over, and the one they begin at: all, a few, those that meet
  // in the first or the last bin.
  for (const auto& [octaves, first] :
       {std::pair{250, -140}, {60, -30}, {30, -20}, {16, 0}, {3, 5}, {1, -60}, {2, 60}}) {
    auto values = test::normal(kTokens * kHeadDim, 4);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = i % 11 == 0 ? 0.0f : std::ldexp(values[i], first + static_cast<int>(i) % octaves);
    const Observed expected = observe(*reference, values, segments, kTokens, 1, kHeadDim, kHeadDim);
    test::for_each_backend([&](Backend& backend) {
      INFO(octaves << " octaves from " << first);
      const Observed actual = observe(backend, values, segments, kTokens, 1, kHeadDim, kHeadDim);
      CHECK(test::same_bytes(actual.extremes, expected.extremes));
      CHECK(test::same_bytes(actual.histogram, expected.histogram));
    });
  }
}

TEST_CASE("observe_kv: a small last value of an odd number is counted once") {
  constexpr int64_t kTokens = 33, kHeadDim = 33;
  const auto reference = test::make_backend("reference");
  const std::vector<Segment> segments{{.q_begin = 0, .q_count = kTokens}};
  std::vector<float> values(kTokens * kHeadDim, 1.5f);
  for (const float last : {1e-8f, 1e-5f, 0.0f, 1.0f}) {
    values.back() = last;
    const Observed expected = observe(*reference, values, segments, kTokens, 1, kHeadDim, kHeadDim);
    test::for_each_backend([&](Backend& backend) {
      INFO("last value " << last);
      const Observed actual = observe(backend, values, segments, kTokens, 1, kHeadDim, kHeadDim);
      CHECK(test::same_bytes(actual.histogram, expected.histogram));
    });
  }
}

TEST_CASE("observe_kv: NaN and infinity are told by token and stay out of range and histogram") {
  for (const std::string& name : test::backend_names()) {
    const auto backend = test::make_backend(name);
    //                               token 0   token 1       token 2      token 3
    const std::vector<float> values{-0.0f, 1, -2.0f, kNan, kInfinity, 3, 0.5f, -0.0f};
    const Observed seen = observe(*backend, values, {{.q_begin = 0, .q_count = 4}}, 4, 1, 2, 2);
    CHECK(seen.extremes == std::vector<float>{-2.0f, 3.0f});
    CHECK(seen.first_nonfinite == std::vector<int32_t>{1});
    uint64_t total = 0;
    for (const uint64_t count : seen.histogram) total += count - 2;
    CHECK(total == 6);
    CHECK(seen.histogram[static_cast<size_t>(MagnitudeHistogram::bin_of(3.0f))] == 2 + 1);
    CHECK(seen.histogram[0] == 2 + 2);

    const Observed bad =
        observe(*backend, {kNan, kInfinity}, {{.q_begin = 0, .q_count = 1}}, 1, 1, 2, 2);
    CHECK(bad.extremes == std::vector<float>{kInfinity, -kInfinity});
    CHECK(bad.first_nonfinite == std::vector<int32_t>{0});
  }
}

}  // namespace
}  // namespace kvcal
