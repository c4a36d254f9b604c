#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

std::vector<float> embed(Backend& backend, DType dtype, const std::vector<std::byte>& table,
                         int64_t hidden, const std::vector<int32_t>& ids, float multiplier) {
  const int64_t vocab = static_cast<int64_t>(table.size()) * 8 / bits_of_dtype(dtype) / hidden;
  const TensorView view{"embed_tokens.weight", dtype, Shape{vocab, hidden}, table};
  const test::OnBackend<float> out(backend,
                                   std::vector<float>(ids.size() * static_cast<size_t>(hidden)));
  backend.embed({.table = view, .ids = ids, .multiplier = multiplier, .out = out.data()});
  return out.values();
}

TEST_CASE("embed: every backend writes the reference's bytes") {
  const auto reference = test::make_backend("reference");
  for (const auto& [dtype, type] : {std::pair{DType::kF32, ComputeType::kFloat32},
                                    {DType::kF16, ComputeType::kFloat16},
                                    {DType::kBF16, ComputeType::kBFloat16}})
    for (const int64_t hidden : {1, 37, 64}) {
      const auto table = test::to_elements(test::normal(11 * hidden, 4), type);
      const std::vector<int32_t> ids{0, 10, 3, 3, 7};
      for (const float multiplier : {1.0f, 24.0f, 0.3f}) {
        const auto expected = embed(*reference, dtype, table, hidden, ids, multiplier);
        test::for_each_backend([&](Backend& backend) {
          INFO(dtype << ", hidden " << hidden << ", multiplier " << multiplier);
          CHECK(test::same_bytes(embed(backend, dtype, table, hidden, ids, multiplier), expected));
          CHECK(embed(backend, dtype, table, hidden, {}, 1.0f).empty());
        });
      }
    }
}

TEST_CASE("embed: every F16 and BF16 code becomes the reference's float32") {
  std::vector<std::byte> table(size_t{65536} * 2);
  for (size_t code = 0; code < 65536; ++code) {
    const uint16_t bits = static_cast<uint16_t>(code);
    std::memcpy(table.data() + 2 * code, &bits, 2);
  }
  const auto reference = test::make_backend("reference");
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto by_reference = embed(*reference, dtype, table, 65536, {0}, 1.0f);
    test::for_each_backend([&](Backend& backend) {
      auto actual = embed(backend, dtype, table, 65536, {0}, 1.0f);
      auto expected = by_reference;
      for (size_t i = 0; i < actual.size(); ++i)  // a NaN's payload carries no meaning
        if (std::isnan(actual[i]) && std::isnan(expected[i])) actual[i] = expected[i] = 0.0f;
      CHECK(test::same_bytes(actual, expected));
    });
  }
}

/// Runs change over 3 rows of heads and checks each element; rows have more behind them.
template <class Change, class Expected>
void check_elements(const Change& change, const Expected& expected) {
  for (const auto& [heads, dim, extra] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 0}, {2, 7, 3}, {4, 16, 0}, {3, 65, 5}}) {
    const int64_t width = heads * dim, stride = width + extra;
    auto x = test::normal(3 * stride, 9);
    x.back() = x.front() = NAN;
    test::for_each_backend([&](Backend& backend) {
      INFO(heads << " heads of " << dim << ", " << extra << " behind them");
      const test::OnBackend<float> changed(backend, x);
      change(backend, HeadsView{changed.data(), 3, heads, dim, stride});
      const std::vector<float> found = changed.values();
      for (size_t i = 0; i < x.size(); ++i) {
        const bool is_in = static_cast<int64_t>(i) % stride < width;
        const float wanted = is_in ? expected(x[i]) : x[i];
        CHECK((found[i] == wanted || (std::isnan(found[i]) && std::isnan(wanted))));
      }
    });
  }
}

TEST_CASE("scale: every element once, rounded once, and nothing behind a row's heads") {
  for (const float factor : {0.0f, 1.0f, -0.37f, 3e-5f})
    check_elements(
        [&](Backend& backend, const HeadsView& x) { backend.scale({.x = x, .factor = factor}); },
        [&](float x) { return x * factor; });
}

TEST_CASE("clamp: cuts on both sides, keeps NaN, and nothing behind a row's heads") {
  for (const float limit : {0.0f, 0.4f, 1e9f})
    check_elements(
        [&](Backend& backend, const HeadsView& x) { backend.clamp({.x = x, .limit = limit}); },
        [&](float x) { return x > limit    ? limit
                              : x < -limit ? -limit
                                           : x; });
}

TEST_CASE("embed: a table on an odd address gives the same bytes") {
  // The header of a safetensors file may have any length.
  const auto reference = test::make_backend("reference");
  for (const auto& [dtype, type] : {std::pair{DType::kF32, ComputeType::kFloat32},
                                    {DType::kF16, ComputeType::kFloat16},
                                    {DType::kBF16, ComputeType::kBFloat16}}) {
    const auto table = test::to_elements(test::normal(5 * 37, 4), type);
    std::vector<std::byte> shifted(table.size() + 1);
    std::copy(table.begin(), table.end(), shifted.begin() + 1);
    const TensorView view{"w", dtype, Shape{5, 37}, std::span(shifted).subspan(1)};
    const std::vector<int32_t> ids{0, 4, 2};
    const auto expected = embed(*reference, dtype, table, 37, ids, 1.0f);
    test::for_each_backend([&](Backend& backend) {
      INFO(dtype);
      const test::OnBackend<float> out(backend, std::vector<float>(3 * 37));
      backend.embed({.table = view, .ids = ids, .out = out.data()});
      CHECK(test::same_bytes(out.values(), expected));
    });
  }
}

TEST_CASE("embed: an id outside the table is an error that names it") {
  const auto table = test::to_elements(test::normal(3 * 4, 4), ComputeType::kFloat32);
  const auto refuses = [&](Backend& backend) {
    for (const int32_t id : {-1, 3}) {
      std::string message;
      try {
        embed(backend, DType::kF32, table, 4, {0, id}, 1.0f);
      } catch (const Error& error) {
        message = error.what();
      }
      CHECK(message == "token id " + std::to_string(id) +
                           " at position 1 leaves 'embed_tokens.weight' of 3 rows");
    }
  };
  test::for_every_backend(refuses);
}

struct RopeCase {
  int64_t tokens = 0, heads = 0, head_dim = 0, rotary_dim = 0, extra_stride = 0;
  bool interleaved = false;
};

std::vector<float> rope(Backend& backend, const RopeCase& c) {
  const int64_t stride = c.heads * c.head_dim + c.extra_stride, pairs = c.rotary_dim / 2;
  constexpr int64_t kPositions = 50;
  std::vector<float> cosines, sines;
  for (int64_t p = 0; p < kPositions; ++p)
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(p) *
                           std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t)
    positions.push_back(static_cast<int32_t>((t * 7) % kPositions));
  const test::OnBackend<float> x(backend, test::normal(c.tokens * stride, 8));
  const test::OnBackend<float> cosine(backend, cosines), sine(backend, sines);
  const test::OnBackend<int32_t> position(backend, positions);
  backend.rope({.x = {.data = x.data(),
                      .tokens = c.tokens,
                      .heads = c.heads,
                      .head_dim = c.head_dim,
                      .row_stride = stride},
                .positions = position.data(),
                .cos = cosine.data(),
                .sin = sine.data(),
                .rotary_dim = c.rotary_dim,
                .interleaved = c.interleaved});
  return x.values();
}

TEST_CASE("rope: every backend agrees with the reference and leaves the rest alone") {
  const auto reference = test::make_backend("reference");
  for (const bool interleaved : {false, true})
    for (RopeCase c : {RopeCase{3, 9, 64, 64}, RopeCase{70, 2, 80, 32, 5}, RopeCase{2, 3, 8, 6},
                       RopeCase{1, 1, 256, 256}, RopeCase{4, 2, 20, 0, 3}, RopeCase{0, 2, 8, 8}}) {
      c.interleaved = interleaved;
      const auto expected = rope(*reference, c);
      test::for_each_backend([&](Backend& backend) {
        INFO(c.tokens << " tokens, head_dim " << c.head_dim << ", rotary_dim " << c.rotary_dim);
        const auto actual = rope(backend, c);
        CHECK(test::agree_relatively(actual, expected, 1e-5, 0.02));
        if (c.rotary_dim == 0) CHECK(test::same_bytes(actual, expected));
      });
    }
}

TEST_CASE("embed: accumulate adds to what is there") {
  const auto reference = test::make_backend("reference");
  const auto table = test::to_elements(test::normal(11 * 37, 4), ComputeType::kBFloat16);
  const TensorView view{"wpe.weight", DType::kBF16, Shape{11, 37}, table};
  const std::vector<int32_t> ids{0, 10, 3, 3, 7};
  const auto run = [&](Backend& backend, float multiplier) {
    const test::OnBackend<float> out(backend, test::normal(5 * 37, 6));
    backend.embed({.table = view,
                   .ids = ids,
                   .multiplier = multiplier,
                   .accumulate = true,
                   .out = out.data()});
    return out.values();
  };
  for (const float multiplier : {1.0f, 0.3f}) {
    const auto expected = run(*reference, multiplier);
    test::for_each_backend(
        [&](Backend& backend) { CHECK(test::same_bytes(run(backend, multiplier), expected)); });
  }
}

struct Observed {
  float amax = 0.0f;
  uint64_t nonfinite = 0;
};

Observed observe(Backend& backend, const std::vector<float>& values, ComputeType type,
                 float before) {
  const test::OnBackend<std::byte> x(backend, test::to_elements(values, type));
  const test::OnBackend<float> amax(backend, {before});
  const test::OnBackend<uint64_t> nonfinite(backend, {5});
  backend.observe_amax({.x = x.data(),
                        .type = type,
                        .count = static_cast<int64_t>(values.size()),
                        .amax = amax.data(),
                        .nonfinite = nonfinite.data()});
  return {amax.values()[0], nonfinite.values()[0]};
}

TEST_CASE("observe_amax: every backend folds in the reference's amax and counts the rest") {
  const auto reference = test::make_backend("reference");
  for (const ComputeType type : test::kComputeTypes)
    for (const int64_t count : {0, 1, 5, 64, 1000, 100003})
      for (const float before : {0.0f, 3.0f, 1e6f}) {
        auto values = test::normal(count, 7);
        for (const int64_t i : {2, 600, 70000})
          if (i < count) values[static_cast<size_t>(i)] = i == 2 ? NAN : -INFINITY;
        if (count > 0) values.back() = -12.5f;
        const Observed expected = observe(*reference, values, type, before);
        CHECK(expected.amax == std::max(count > 0 ? 12.5f : 0.0f, before));
        CHECK(expected.nonfinite == uint64_t{5} + (count > 2) + (count > 600) + (count > 70000));
        test::for_each_backend([&](Backend& backend) {
          INFO(count << " values as " << name_of(type));
          const Observed actual = observe(backend, values, type, before);
          CHECK(actual.amax == expected.amax);
          CHECK(actual.nonfinite == expected.nonfinite);
        });
      }
}

TEST_CASE("observe_amax: the smallest and largest magnitudes are kept") {
  const auto keeps = [](Backend& backend) {
    CHECK(observe(backend, {0.0f, -0x1p-149f}, ComputeType::kFloat32, 0.0f).amax == 0x1p-149f);
    CHECK(observe(backend, {-3.4e38f, INFINITY}, ComputeType::kFloat32, 0.0f).amax == 3.4e38f);
    CHECK(observe(backend, {NAN}, ComputeType::kFloat32, 0.0f).amax == 0.0f);
  };
  test::for_every_backend(keeps);
}

TEST_CASE("embed: a batch of more bytes than pass through at a time, rows longer than that") {
  const auto reference = test::make_backend("reference");
  for (const auto& [hidden, count] : {std::pair<int64_t, size_t>{577, 1500}, {300001, 3}}) {
    const auto table = test::to_elements(test::normal(7 * hidden, 4), ComputeType::kFloat32);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i * 5 % 7));
    const auto expected = embed(*reference, DType::kF32, table, hidden, ids, 0.3f);
    test::for_each_backend([&](Backend& backend) {
      INFO(count << " rows of " << hidden);
      CHECK(test::same_bytes(embed(backend, DType::kF32, table, hidden, ids, 0.3f), expected));
    });
  }
}

}  // namespace
}  // namespace kvcal
