#include <cmath>
#include <limits>

#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr fp8::Format kFormat = fp8::Format::kE4m3Fn;
constexpr uint8_t kNan = 0x7f;

/// Of different magnitudes; few values saturate.
std::vector<float> some_scales(int64_t count) {
  std::vector<float> scales = test::normal(count, 4, 0.05f);
  for (float& scale : scales) scale = std::fabs(scale) + 0.05f;
  return scales;
}

struct QuantizeCase {
  int64_t rows = 0, width = 0;
  ComputeType type = ComputeType::kFloat32;
  fp8::Format format = kFormat;
  bool given = false, per_row = false;
};

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<uint64_t> saturated;
};

/// Normal numbers with what is special among them: row 1 has NaN and infinities, row 2 is zeros,
/// row 3 so small that its scale would round to zero.
std::vector<float> special_rows(int64_t rows, int64_t width) {
  std::vector<float> x = test::normal(rows * width, 3, 20.0f);
  const auto at = [&](int64_t row, int64_t i) -> float& {
    return x[static_cast<size_t>(row * width + i % width)];
  };
  if (rows > 1) {
    at(1, 0) = NAN;
    at(1, 1) = -INFINITY;
    at(1, width / 2) = -NAN;
    at(1, width - 1) = INFINITY;
  }
  for (int64_t i = 0; i < width && rows > 3; ++i) {
    at(2, i) = i % 2 == 0 ? -0.0f : 0.0f;
    at(3, i) = i % 3 == 0 ? -std::numeric_limits<float>::denorm_min() : 0.0f;
  }
  return x;
}

Quantized quantize(Backend& backend, const QuantizeCase& c, const std::vector<float>& values) {
  const test::OnBackend<std::byte> x(backend, test::to_elements(values, c.type));
  const auto given = some_scales(c.per_row ? c.rows : 1);
  const test::OnBackend<float> scales(
      backend, c.given ? given : std::vector<float>(static_cast<size_t>(c.rows), NAN));
  const test::OnBackend<uint8_t> out(backend,
                                     std::vector<uint8_t>(static_cast<size_t>(c.rows * c.width)));
  const test::OnBackend<uint64_t> saturated(backend, {100});
  backend.quantize_rows({.x = x.data(),
                         .type = c.type,
                         .rows = c.rows,
                         .width = c.width,
                         .format = c.format,
                         .scales = c.given ? scales.data() : nullptr,
                         .scale_per_row = c.per_row,
                         .row_scales = c.given ? nullptr : scales.data(),
                         .out = out.data(),
                         .saturated = saturated.data()});
  return {out.values(), scales.values(), saturated.values()};
}

void check_quantized(Backend& backend, const QuantizeCase& c, const Quantized& expected) {
  INFO(backend.name() << ", " << name_of(c.type) << " to " << fp8::name_of(c.format) << ", "
                      << c.rows << " x " << c.width
                      << (c.given ? c.per_row ? ", scale a row" : ", one scale" : ", dynamic"));
  const Quantized actual = quantize(backend, c, special_rows(c.rows, c.width));
  CHECK(test::same_bytes(actual.codes, expected.codes));
  CHECK(test::same_bytes(actual.scales, expected.scales));
  CHECK(actual.saturated == expected.saturated);
}

TEST_CASE("quantize_rows: every backend writes the reference's bytes") {
  const auto reference = test::make_backend("reference");
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 77}, {7, 256}, {4, 4112}})
    for (const ComputeType type : test::kComputeTypes)
      for (const auto format : {fp8::Format::kE4m3Fn, fp8::Format::kE4m3Fnuz, fp8::Format::kE5m2})
        for (const auto& [given, per_row] :
             {std::pair{true, false}, {true, true}, {false, false}}) {
          if (width > 1000 && format != kFormat) continue;
          const QuantizeCase c{rows, width, type, format, given, per_row};
          const Quantized expected = quantize(*reference, c, special_rows(rows, width));
          test::for_each_backend([&](Backend& backend) { check_quantized(backend, c, expected); });
        }
}

TEST_CASE("quantize_rows: rows longer than a block's registers") {
  const QuantizeCase c{.rows = 2, .width = 17408, .type = ComputeType::kBFloat16};
  const Quantized expected =
      quantize(*test::make_backend("reference"), c, special_rows(c.rows, c.width));
  test::for_each_backend([&](Backend& backend) { check_quantized(backend, c, expected); });
}

TEST_CASE("quantize_rows: what is special") {
  const QuantizeCase c{.rows = 5, .width = 32};
  std::vector<float> x = special_rows(c.rows, c.width);
  test::for_every_backend([&](Backend& backend) {
    const Quantized q = quantize(backend, c, x);
    const auto code = [&](int64_t row, int64_t i) {
      return q.codes[static_cast<size_t>(row * c.width + i)];
    };
    CHECK(code(1, 0) == kNan);
    CHECK(code(1, 1) == 0xfe);
    CHECK(code(1, 16) == 0xff);
    CHECK(code(1, 31) == 0x7e);
    CHECK(std::isfinite(q.scales[1]));
    CHECK(q.scales[2] == std::numeric_limits<float>::epsilon());
    CHECK(code(2, 0) == 0x80);
    CHECK(q.scales[3] == std::numeric_limits<float>::epsilon());
    const auto largest = [&](int64_t row) {
      uint8_t most = 0;
      for (int64_t i = 0; i < c.width; ++i) most = std::max<uint8_t>(most, code(row, i) & 0x7f);
      return most;
    };
    CHECK(largest(0) == 0x7e);  // a row's largest value gets the largest code
    CHECK(largest(4) == 0x7e);
  });
}

TEST_CASE("quantize_rows: given scales saturate and count, and no counter is needed") {
  test::for_every_backend([&](Backend& backend) {
    const test::OnBackend<float> x(backend, {448.0f, -449.0f, 1e30f, INFINITY, NAN, 2.0f});
    const test::OnBackend<float> scales(backend, {1.0f, 0.001f});
    const test::OnBackend<uint8_t> out(backend, std::vector<uint8_t>(6));
    const test::OnBackend<uint64_t> saturated(backend, {7});
    QuantizeRowsArgs args{.x = x.data(),
                          .rows = 2,
                          .width = 3,
                          .scales = scales.data(),
                          .scale_per_row = true,
                          .out = out.data()};
    backend.quantize_rows(args);
    const std::vector<uint8_t> expected{0x7e, 0xfe, 0x7e, 0x7e, kNan, 0x7e};
    CHECK(out.values() == expected);
    args.saturated = saturated.data();
    backend.quantize_rows(args);
    CHECK(out.values() == expected);
    CHECK(saturated.values()[0] == 7 + 2 + 1);
    args.rows = 0;
    backend.quantize_rows(args);
    CHECK(saturated.values()[0] == 10);
  });
}

}  // namespace
}  // namespace kvcal
