#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "support/every_backend.h"
#include "support/folders.h"
#include "support/near.h"

namespace kvcal {
namespace {

/// Codes of normal numbers, the same for one seed; many repeat.
std::vector<uint8_t> random_codes(int64_t count, uint64_t seed) {
  const std::vector<float> values = test::normal(std::min<int64_t>(count, 10007), seed, 60.0f);
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = fp8::encode(values[i % values.size()], fp8::Format::kE4m3Fn);
  return codes;
}
/// Positive and of different magnitudes.
std::vector<float> random_scales(int64_t count, uint64_t seed) {
  std::vector<float> scales = test::normal(count, seed, 0.01f);
  for (float& scale : scales) scale = std::fabs(scale) + 0.001f;
  return scales;
}

struct Fp8Case {
  int64_t rows = 0, in = 0;
  std::vector<int64_t> out;  ///< rows of each part
  bool per_row = false, per_feature = false;
  bool has_bias = false, accumulate = false;
  int64_t extra_stride = 0;
  bool is_decoding = false;

  int64_t out_features() const {
    int64_t sum = 0;
    for (const int64_t part : out) sum += part;
    return sum;
  }
};

std::unique_ptr<PackedMatrix> packed(Backend& backend, const Fp8Case& c) {
  std::vector<std::vector<uint8_t>> codes;
  std::vector<TensorView> views;
  for (size_t i = 0; i < c.out.size(); ++i) codes.push_back(random_codes(c.out[i] * c.in, 11 + i));
  for (size_t i = 0; i < c.out.size(); ++i)
    views.push_back(
        {"w", DType::kF8E4M3, Shape{c.out[i], c.in}, std::as_bytes(std::span(codes[i]))});
  const auto count = c.per_feature ? c.out_features() : static_cast<int64_t>(c.out.size());
  return backend.pack_fp8(views, random_scales(count, 12));
}

/// Rows from first_row on, with the padding between them, which must stay as it was.
std::vector<float> multiply(Backend& backend, const PackedMatrix& weight, const Fp8Case& c,
                            int64_t first_row = 0) {
  const int64_t stride = c.out_features() + c.extra_stride;
  const auto all = random_codes((first_row + c.rows) * c.in, 5);
  auto scales = random_scales(first_row + c.rows + 1, 8);
  scales.erase(scales.begin(), scales.begin() + (c.per_row ? first_row : 0));
  const test::OnBackend<uint8_t> x(backend, {all.begin() + first_row * c.in, all.end()});
  const test::OnBackend<float> x_scales(backend, scales);
  const test::OnBackend<float> bias(backend, test::normal(c.out_features(), 6, 50.0f));
  auto before = test::normal((first_row + c.rows) * stride, 7, 50.0f);
  before.erase(before.begin(), before.begin() + first_row * stride);
  const test::OnBackend<float> out(backend, before);
  backend.matmul_fp8({.x = x.data(),
                      .x_scales = x_scales.data(),
                      .scale_per_row = c.per_row,
                      .weight = weight,
                      .bias = c.has_bias ? bias.data() : nullptr,
                      .accumulate = c.accumulate,
                      .rows = c.rows,
                      .out = out.data(),
                      .out_stride = c.extra_stride == 0 ? 0 : stride,
                      .is_decoding = c.is_decoding});
  return out.values();
}

/// Widths that the simulated vendor library takes as FP8 (of 16), as bfloat16 (of 8), or not.
const std::vector<Fp8Case> kCases{
    {.rows = 7, .in = 64, .out = {48}},
    {.rows = 1, .in = 576, .out = {192}, .has_bias = true},
    {.rows = 37, .in = 48, .out = {32, 16}, .accumulate = true},
    {.rows = 37, .in = 48, .out = {32, 16}, .per_row = true, .has_bias = true, .accumulate = true},
    {.rows = 20, .in = 32, .out = {65}, .per_feature = true, .extra_stride = 3},
    {.rows = 150, .in = 40, .out = {9, 24}, .per_row = true, .has_bias = true},
    {.rows = 19, .in = 104, .out = {12}, .per_feature = true, .accumulate = true},
    {.rows = 33, .in = 77, .out = {50, 3}, .per_row = true, .per_feature = true, .has_bias = true},
    {.rows = 2, .in = 1, .out = {1}},
    {.rows = 66, .in = 19, .out = {70}, .has_bias = true, .accumulate = true, .extra_stride = 5},
    {.rows = 1, .in = 1536, .out = {70}, .per_row = true, .per_feature = true, .is_decoding = true},
    {.rows = 4, .in = 41, .out = {9}, .has_bias = true, .accumulate = true, .is_decoding = true},
    {.rows = 6, .in = 32, .out = {16}, .per_row = true, .accumulate = true, .is_decoding = true},
    {.rows = 6, .in = 32, .out = {16}, .per_row = true, .has_bias = true, .is_decoding = true},
    {.rows = 6, .in = 40, .out = {16}, .per_row = true, .is_decoding = true},
};

TEST_CASE("matmul_fp8: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const Fp8Case& c : kCases) {
    const auto expected = multiply(*reference, *packed(*reference, c), c);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.rows << " rows, " << c.in << " -> " << c.out_features());
      const auto weight = packed(backend, c);
      CHECK(weight->out_features == c.out_features());
      CHECK(weight->in_features == c.in);
      CHECK(weight->bytes >= static_cast<size_t>(c.in * c.out_features()));
      CHECK(test::agree_as_sums(multiply(backend, *weight, c), expected));
    });
  }
}

TEST_CASE("matmul_fp8: scales of each kind in turn, by one backend and one shape") {
  const auto reference = test::make_backend("reference");
  const Fp8Case plain{.rows = 7, .in = 64, .out = {48}};
  Fp8Case by_row = plain, biased = plain, by_feature = plain;
  by_row.per_row = by_feature.per_feature = biased.has_bias = true;
  // What is remembered of a shape must serve the next, whichever comes first.
  const std::vector<std::vector<Fp8Case>> orders{{plain, by_row, biased, by_row, by_feature, plain},
                                                 {by_row, plain, by_feature, biased, by_row, plain},
                                                 {by_feature, by_row, plain, biased}};
  for (const auto& order : orders)
    test::for_each_backend([&](Backend& backend) {
      for (const Fp8Case& c : order) {
        INFO("per row " << c.per_row << ", per feature " << c.per_feature << ", bias "
                        << c.has_bias);
        const auto expected = multiply(*reference, *packed(*reference, c), c);
        CHECK(test::agree_as_sums(multiply(backend, *packed(backend, c), c), expected));
      }
    });
}

TEST_CASE("matmul_fp8: more rows than are multiplied at a time") {
  const Fp8Case c{
      .rows = 2050, .in = 16392, .out = {1}, .per_row = true, .has_bias = true, .accumulate = true};
  const auto reference = test::make_backend("reference");
  const auto expected = multiply(*reference, *packed(*reference, c), c);
#ifdef KVCAL_TEST_SIMULATED_GPU
  gpu::simulator::set_vendor_matmul(true);
#endif
  for (const std::string& name : test::backend_names()) {
    if (name == "reference") continue;
    INFO(name);
    const auto backend = test::make_backend(name);
    CHECK(test::agree_as_sums(multiply(*backend, *packed(*backend, c), c), expected));
  }
#ifdef KVCAL_TEST_SIMULATED_GPU
  gpu::simulator::set_vendor_matmul(false);
#endif
}

TEST_CASE("matmul_fp8: a row's bytes depend neither on the other rows nor on the threads") {
  constexpr int64_t kRow = 6;
  for (const auto& [in, accumulate] : {std::pair{64, true}, {40, false}, {40, true}, {77, false}})
    for (const std::string& name : test::backend_names()) {
      Fp8Case c{.in = in, .out = {36}, .per_row = true, .accumulate = accumulate};
      std::vector<float> expected;
      for (const int threads : {1, 3}) {
        const auto backend = test::make_backend(name, threads);
        const auto weight = packed(*backend, c);
        c.rows = 1;
        if (expected.empty()) expected = multiply(*backend, *weight, c, kRow);
        for (const int64_t rows : {7, 17, 64, 130}) {
          c.rows = rows;
          const auto all = multiply(*backend, *weight, c);
          const auto begin = all.begin() + kRow * 36;
          INFO(name << ", " << in << " wide, " << rows << " rows");
          CHECK(test::same_bytes(std::vector<float>(begin, begin + 36), expected));
        }
      }
    }
}

TEST_CASE("matmul_fp8: NaN codes of inputs and weights reach the result") {
  for (const bool is_decoding : {false, true})
    for (const int64_t in : {32, 24, 21})
      test::for_every_backend([&](Backend& backend) {
        std::vector<uint8_t> w(static_cast<size_t>(16 * in), 0x38),
            x(static_cast<size_t>(3 * in), 0x38);
        w[static_cast<size_t>(2 * in + 1)] = 0xff;
        x[5] = 0x7f;
        const std::vector<TensorView> views{
            {"w", DType::kF8E4M3, Shape{16, in}, std::as_bytes(std::span(w))}};
        const std::vector<float> scale{0.5f};
        const auto weight = backend.pack_fp8(views, scale);
        const test::OnBackend<uint8_t> inputs(backend, x);
        const test::OnBackend<float> x_scales(backend, {2.0f}),
            out(backend, std::vector<float>(48));
        backend.matmul_fp8({.x = inputs.data(),
                            .x_scales = x_scales.data(),
                            .weight = *weight,
                            .rows = 3,
                            .out = out.data(),
                            .is_decoding = is_decoding});
        const auto result = out.values();
        INFO(in << " wide");
        for (int64_t i = 0; i < 48; ++i) {
          const float value = result[static_cast<size_t>(i)];
          if (i < 16 || i % 16 == 2)
            CHECK(std::isnan(value));
          else
            CHECK(value == static_cast<float>(in));
        }
      });
}

TEST_CASE("matmul_fp8: no rows and no outputs are answered") {
  test::for_every_backend([&](Backend& backend) {
    for (const Fp8Case& c :
         {Fp8Case{.rows = 0, .in = 16, .out = {4}}, Fp8Case{.rows = 3, .in = 16, .out = {0}}})
      CHECK(multiply(backend, *packed(backend, c), c).empty());
  });
}

TEST_CASE("pack_fp8: refuses other types, shapes and scales, by name") {
  const std::vector<uint8_t> codes(24, 0x38);
  const auto bytes = std::as_bytes(std::span(codes));
  const TensorView good{"good", DType::kF8E4M3, Shape{3, 8}, bytes};
  const std::vector<std::tuple<TensorView, std::vector<float>, std::string>> cases{
      {{"w", DType::kF8E5M2, Shape{3, 8}, bytes},
       {1.0f},
       "tensor 'w' is F8_E5M2, expected F8_E4M3"},
      {{"w", DType::kF8E4M3, Shape{24}, bytes},
       {1.0f},
       "tensor 'w' has shape [24], expected two dimensions"},
      {{"w", DType::kF8E4M3, Shape{3, 7}, bytes},
       {1.0f},
       "tensor 'w': shape [3, 7] of F8_E4M3 needs 21 bytes, it has 24"},
      {good,
       {1.0f, 1.0f},
       "tensor 'good' has 2 scales, expected 1 (one a tensor) or 3 (one a row)"},
      {good,
       {-1.0f},
       "tensor 'good' has a scale of -1, expected a finite one that is not negative"},
      {good,
       {INFINITY},
       "tensor 'good' has a scale of inf, expected a finite one that is not negative"},
  };
  test::for_every_backend([&](Backend& backend) {
    for (const auto& [view, scales, message] : cases)
      CHECK_THROWS_WITH(backend.pack_fp8(std::span(&view, 1), scales), message);
    const std::vector<TensorView> uneven{good, {"w", DType::kF8E4M3, Shape{4, 6}, bytes}};
    CHECK_THROWS_WITH(backend.pack_fp8(uneven, std::vector<float>{1.0f, 1.0f}),
                      "tensor 'w' has shape [4, 6], expected 8 columns as in 'good'");
  });
}

// ---- PyTorch, by reference/kernels_fp8.py ----

std::vector<float> floats(const Json& c, const char* key) {
  return c.at(key).get<std::vector<float>>();
}
std::vector<uint8_t> bytes(const Json& c, const char* key) {
  return c.at(key).get<std::vector<uint8_t>>();
}

TEST_CASE("FP8: codes, scales and products are torch's") {
  const fs::path path = test::tests_folder() / "fixtures/kernels/fp8.json";
  for (const Json& c : parse_json(read_text(path)))
    test::for_every_backend([&](Backend& backend) {
      const int64_t rows = required_int(c, "rows"), in = required_int(c, "in");
      const int64_t out_features = required_int(c, "out");
      const bool per_row = c.at("scale_per_row").get<bool>();
      const auto x_scales = floats(c, "x_scales"), weight_scales = floats(c, "weight_scales");
      const test::OnBackend<float> x(backend, floats(c, "x")), bias(backend, floats(c, "bias")),
          scales(backend, per_row ? std::vector<float>(x_scales.size(), NAN) : x_scales);
      const test::OnBackend<uint8_t> codes(backend,
                                           std::vector<uint8_t>(static_cast<size_t>(rows * in)));
      backend.quantize_rows({.x = x.data(),
                             .rows = rows,
                             .width = in,
                             .scales = per_row ? nullptr : scales.data(),
                             .row_scales = per_row ? scales.data() : nullptr,
                             .out = codes.data()});
      CHECK(test::same_bytes(codes.values(), bytes(c, "x_codes")));
      CHECK(test::same_bytes(scales.values(), x_scales));

      const auto weight_codes = bytes(c, "weight_codes");
      const std::vector<TensorView> views{
          {"w", DType::kF8E4M3, Shape{out_features, in}, std::as_bytes(std::span(weight_codes))}};
      const auto weight = backend.pack_fp8(views, weight_scales);
      const auto expected = floats(c, "result");
      const test::OnBackend<float> out(backend, std::vector<float>(expected.size(), NAN));
      backend.matmul_fp8({.x = codes.data(),
                          .x_scales = scales.data(),
                          .scale_per_row = per_row,
                          .weight = *weight,
                          .bias = bias.data(),
                          .rows = rows,
                          .out = out.data()});
      CHECK(test::agree_relatively(out.values(), expected, 1e-5, 1.0));
    });
}

}  // namespace
}  // namespace kvcal
