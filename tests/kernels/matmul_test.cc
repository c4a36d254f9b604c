#include <cstring>

#include "support/backends.h"
#include "support/near.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

struct MatmulCase {
  int64_t rows = 0, in = 0;
  std::vector<int64_t> out;  ///< rows of each part
  ComputeType type = ComputeType::kFloat32;
  DType stored = DType::kF32;
  bool has_bias = false, accumulate = false;
  int64_t extra_stride = 0;
  bool is_decoding = false;

  int64_t out_features() const {
    int64_t sum = 0;
    for (const int64_t part : out) sum += part;
    return sum;
  }
};

std::vector<std::byte> stored_bytes(const std::vector<float>& values, DType dtype) {
  return test::to_elements(values, dtype == DType::kF32    ? ComputeType::kFloat32
                                   : dtype == DType::kBF16 ? ComputeType::kBFloat16
                                                           : ComputeType::kFloat16);
}

/// The weight of a case, packed; parts differ.
std::unique_ptr<PackedMatrix> packed(Backend& backend, const MatmulCase& c) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorView> views;
  for (size_t i = 0; i < c.out.size(); ++i)
    bytes.push_back(stored_bytes(test::normal(c.out[i] * c.in, 11 + i, 0.1f), c.stored));
  for (size_t i = 0; i < c.out.size(); ++i)
    views.push_back({"w", c.stored, Shape{c.out[i], c.in}, bytes[i]});
  return backend.pack(views, c.type);
}

/// Result with the padding between rows, which must stay as it was.
std::vector<float> multiply(Backend& backend, const PackedMatrix& weight, const MatmulCase& c,
                            int64_t first_row = 0) {
  const int64_t stride = c.out_features() + c.extra_stride;
  const auto all = test::to_elements(test::normal((first_row + c.rows) * c.in, 5), c.type);
  const size_t skipped = static_cast<size_t>(first_row * c.in) * bytes_of(c.type);
  const test::OnBackend<std::byte> x(backend,
                                     {all.begin() + static_cast<int64_t>(skipped), all.end()});
  const test::OnBackend<float> bias(backend, test::normal(c.out_features(), 6));
  const test::OnBackend<float> out(backend, test::normal(c.rows * stride, 7));
  backend.matmul({.x = x.data(),
                  .weight = weight,
                  .bias = c.has_bias ? bias.data() : nullptr,
                  .accumulate = c.accumulate,
                  .rows = c.rows,
                  .out = out.data(),
                  .out_stride = c.extra_stride == 0 ? 0 : stride,
                  .is_decoding = c.is_decoding});
  return out.values();
}

std::vector<float> multiply(Backend& backend, const MatmulCase& c) {
  return multiply(backend, *packed(backend, c), c);
}

const std::vector<MatmulCase> kCases{
    {.rows = 1, .in = 576, .out = {576}},
    {.rows = 7, .in = 77, .out = {50, 3}},
    {.rows = 37, .in = 64, .out = {192, 64, 64}, .has_bias = true},
    {.rows = 150, .in = 100, .out = {333}, .accumulate = true},
    {.rows = 301, .in = 33, .out = {65}, .has_bias = true, .accumulate = true, .extra_stride = 3},
    {.rows = 2, .in = 1, .out = {1}},
    {.rows = 19, .in = 1536, .out = {17}, .stored = DType::kF16},
    {.rows = 130, .in = 96, .out = {700}, .stored = DType::kBF16, .extra_stride = 16},
    {.rows = 1, .in = 1536, .out = {200, 3}, .has_bias = true, .is_decoding = true},
    {.rows = 3, .in = 77, .out = {50}, .accumulate = true, .is_decoding = true},
    {.rows = 4, .in = 40, .out = {9}, .extra_stride = 2, .is_decoding = true},
    {.rows = 5, .in = 40, .out = {9}, .is_decoding = true},
};

TEST_CASE("matmul: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const ComputeType type : test::kComputeTypes)
    for (MatmulCase c : kCases) {
      c.type = type;
      const auto expected = multiply(*reference, c);
      test::for_each_backend([&](Backend& backend) {
        if (!backend.supports(type)) return;
        INFO(name_of(type) << ", " << c.rows << " rows, " << c.in << " -> " << c.out_features());
        CHECK(test::agree_as_sums(multiply(backend, c), expected));
      });
    }
}

TEST_CASE("matmul: results larger than the caches agree, too") {
  const MatmulCase c{.rows = 1100, .in = 24, .out = {1000}};
  const auto expected = multiply(*test::make_backend("reference"), c);
  for (const std::string& name : test::backend_names()) {
    INFO(name);
    const auto actual = multiply(*test::make_backend(name, 2), c);
    CHECK(test::agree_as_sums(actual, expected));
    CHECK(test::largest_error(actual, expected) < 1e-5);
  }
}

/// Row 6 of products with any number of rows before and behind it is the row alone.
void check_row_alone(Backend& backend, ComputeType type, int64_t in, int64_t out_features,
                     std::vector<float>& expected) {
  constexpr int64_t kRow = 6;
  MatmulCase c{.rows = 1, .in = in, .out = {out_features}, .type = type};
  const auto weight = packed(backend, c);
  if (expected.empty()) expected = multiply(backend, *weight, c, kRow);
  for (const int64_t rows : {7, 16, 17, 64, 130, 300}) {
    c.rows = rows;
    const auto all = multiply(backend, *weight, c);
    const auto begin = all.begin() + kRow * out_features;
    INFO(name_of(type) << ", " << in << " -> " << out_features << ", " << rows << " rows, "
                       << backend.description());
    CHECK(test::same_bytes(std::vector<float>(begin, begin + out_features), expected));
  }
  for (const int64_t first : {4, 5}) {
    c.rows = kRow + 1 - first;  // 3 rows, then 2
    const auto all = multiply(backend, *weight, c, first);
    CHECK(test::same_bytes(std::vector<float>(all.end() - out_features, all.end()), expected));
  }
}

/// The same at the widths of a model and the rows of its batches, where libraries change kernels.
void check_rows_of_model(Backend& backend, int64_t in, int64_t out_features) {
  MatmulCase c{
      .in = in, .out = {out_features}, .type = ComputeType::kBFloat16, .stored = DType::kBF16};
  const auto weight = packed(backend, c);
  std::vector<float> fewer;
  for (const int64_t rows : {1, 77, 2048, 8193}) {
    c.rows = rows;
    std::vector<float> all = multiply(backend, *weight, c);
    INFO(in << " -> " << out_features << ", " << rows << " rows, " << backend.description());
    const auto common = all.begin() + static_cast<int64_t>(fewer.size());
    CHECK(test::same_bytes(std::vector<float>(all.begin(), common), fewer));
    c.rows = 1;
    CHECK(test::same_bytes(std::vector<float>(all.end() - out_features, all.end()),
                           multiply(backend, *weight, c, rows - 1)));
    fewer = std::move(all);
  }
}

/// Whether a CPU executes the device's code (tests/ptx): slow, and without a vendor's library.
bool is_on_cpu(const Backend& backend) {
  return backend.description().find("PTX on the CPU") != std::string::npos;
}

TEST_CASE("matmul: a row's bytes depend neither on the other rows nor on the threads") {
  for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16})
    for (const auto& [in, out_features] : {std::pair<int64_t, int64_t>{576, 576},
                                           {100, 64},
                                           {1536, 70},
                                           {77, 50},
                                           {5000, 64},
                                           {14336, 96}})
      for (const std::string& name : test::backend_names()) {
        if (name == "reference" || !test::make_backend(name)->supports(type)) continue;
        if (name == "simulated" && in * out_features > 120000) continue;  // slow, and the same code
        std::vector<float> expected;
        for (const int threads : {1, 2, 3}) {
          check_row_alone(*test::make_backend(name, threads), type, in, out_features, expected);
          if (name != "cpu") break;
        }
      }
  for (const std::string& name : test::backend_names()) {
    if (!test::is_device(name) || name == "simulated") continue;
    const auto backend = test::make_backend(name);
    if (is_on_cpu(*backend)) continue;
    for (const auto& [in, out_features] :
         {std::pair<int64_t, int64_t>{4096, 14336}, {14336, 4096}, {4096, 6144}})
      check_rows_of_model(*backend, in, out_features);
  }
}

TEST_CASE("matmul: NaN and infinity reach the result") {
  const std::vector<float> w(64 * 32, 0.5f);
  const std::vector<TensorView> views{
      {"w", DType::kF32, Shape{64, 32}, std::as_bytes(std::span(w))}};
  std::vector<float> values(3 * 32, 1.0f);
  values[5] = NAN;
  values[40] = INFINITY;
  for (const bool is_decoding : {false, true})
    for (const std::string& name : test::backend_names()) {
      INFO(name);
      const auto backend = test::make_backend(name);
      const auto weight = backend->pack(views, ComputeType::kFloat32);
      const test::OnBackend<float> x(*backend, values);
      const test::OnBackend<float> result(*backend, std::vector<float>(3 * 64));
      backend->matmul({.x = x.data(),
                       .weight = *weight,
                       .rows = 3,
                       .out = result.data(),
                       .is_decoding = is_decoding});
      const auto out = result.values();
      CHECK(std::isnan(out[0]));
      CHECK(out[64] == INFINITY);
      CHECK(out[128] == 16.0f);
    }
}

TEST_CASE("pack: rounds to nearest, ties to even, whatever the stored type") {
  // One row of inputs picks single weights out, exactly.
  const std::vector<float> values{1.00390625f, 1.01171875f, -3.14159f, 65504.0f,
                                  1e-3f,       0.0f,        0x1p-24f};
  const int64_t n = static_cast<int64_t>(values.size());
  for (const DType stored : {DType::kF32, DType::kF16, DType::kBF16})
    for (const ComputeType type : test::kComputeTypes)
      for (const std::string& name : test::backend_names()) {
        const auto backend = test::make_backend(name);
        if (!backend->supports(type)) continue;
        const auto bytes = stored_bytes(values, stored);
        const std::vector<TensorView> views{{"w", stored, Shape{n, 1}, bytes}};
        const auto weight = backend->pack(views, type);
        CHECK(weight->out_features == n);
        CHECK(weight->bytes >= static_cast<size_t>(n) * bytes_of(type));
        const test::OnBackend<std::byte> one(*backend, test::to_elements({1.0f}, type));
        const test::OnBackend<float> out(*backend, std::vector<float>(values.size()));
        backend->matmul({.x = one.data(), .weight = *weight, .rows = 1, .out = out.data()});
        const ComputeType as_stored = stored == DType::kF32    ? ComputeType::kFloat32
                                      : stored == DType::kBF16 ? ComputeType::kBFloat16
                                                               : ComputeType::kFloat16;
        const auto expected =
            test::to_floats(test::to_elements(test::to_floats(bytes, as_stored), type), type);
        INFO(name << ", " << stored << " as " << name_of(type));
        CHECK(test::same_bytes(out.values(), expected));
      }
}

TEST_CASE("pack: a part on an odd address gives the same bytes") {
  // The header of a safetensors file may have any length.
  for (const DType stored : {DType::kF32, DType::kF16, DType::kBF16}) {
    const MatmulCase c{.rows = 3, .in = 37, .out = {50}, .stored = stored};
    const auto bytes = stored_bytes(test::normal(50 * 37, 11, 0.1f), stored);
    std::vector<std::byte> shifted(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    const std::vector<TensorView> views{
        {"w", stored, Shape{50, 37}, std::span(shifted).subspan(1)}};
    test::for_each_backend([&](Backend& backend) {
      INFO(stored);
      const auto weight = backend.pack(views, c.type);
      CHECK(test::same_bytes(multiply(backend, *weight, c), multiply(backend, c)));
    });
  }
}

namespace {

/// Rows of float32 values.
class TestRows : public RowDecoder {
 public:
  TestRows(std::vector<float> values, int64_t width) : values_(std::move(values)), width_(width) {}
  int64_t width() const override { return width_; }
  void decode(int64_t first, int64_t count, float* out) const override {
    std::copy_n(values_.begin() + first * width_, count * width_, out);
  }

 private:
  std::vector<float> values_;
  int64_t width_;
};

}  // namespace

TEST_CASE("pack_decoded: gives pack's bytes of the same rows") {
  for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16})
    for (const int64_t in : {37, 576}) {
      const std::vector<float> a = test::normal(70 * in, 11, 0.1f);
      const std::vector<float> b = test::normal(150 * in, 12, 0.1f);
      const TestRows first(a, in), second(b, in);
      const std::vector<DecodedRows> parts{{&second, 20, 130}, {&first, 0, 70}, {&second, 3, 11}};
      const auto view = [&](const std::vector<float>& values, int64_t begin, int64_t count) {
        return TensorView{"w", DType::kF32, Shape{count, in},
                          std::as_bytes(std::span(values).subspan(
                              static_cast<size_t>(begin * in), static_cast<size_t>(count * in)))};
      };
      const std::vector<TensorView> views{view(b, 20, 130), view(a, 0, 70), view(b, 3, 11)};
      const MatmulCase c{.rows = 3, .in = in, .out = {211}, .type = type};
      test::for_each_backend([&](Backend& backend) {
        if (!backend.supports(type)) return;
        INFO(in << " inputs, " << name_of(type));
        const auto weight = backend.pack_decoded(parts, type);
        CHECK(weight->out_features == 211);
        CHECK(test::same_bytes(multiply(backend, *weight, c),
                               multiply(backend, *backend.pack(views, type), c)));
      });
    }
}

TEST_CASE("pack_decoded: an error of decoding leaves the backend usable") {
  class Broken : public RowDecoder {
   public:
    int64_t width() const override { return 64; }
    void decode(int64_t, int64_t, float*) const override { fail("holds NaN"); }
  };
  const Broken broken;
  const std::vector<DecodedRows> parts{{&broken, 0, 200}};
  const MatmulCase c{.rows = 3, .in = 64, .out = {50}};
  test::for_each_backend([&](Backend& backend) {
    CHECK(test::message_of([&] { backend.pack_decoded(parts, c.type); }) == "holds NaN");
    CHECK(multiply(backend, c).size() == 150);
  });
}

TEST_CASE("pack: says what is wrong with a part") {
  const std::vector<float> values(12, 1.0f);
  const auto bytes = std::as_bytes(std::span(values));
  for (const std::string& name : test::backend_names()) {
    const auto backend = test::make_backend(name);
    const auto message = [&](const std::vector<TensorView>& parts) -> std::string {
      try {
        backend->pack(parts, ComputeType::kFloat32);
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    CHECK(
        message({{"a", DType::kF32, Shape{3, 4}, bytes}, {"b", DType::kF32, Shape{4, 3}, bytes}}) ==
        "tensor 'b' has shape [4, 3], expected 4 columns as in 'a'");
    CHECK(message({{"a", DType::kF32, Shape{12}, bytes}}) ==
          "tensor 'a' has shape [12], expected two dimensions");
    CHECK(message({{"a", DType::kI32, Shape{3, 4}, bytes}}) ==
          "tensor 'a' is I32, expected F32, F16 or BF16");
    CHECK(message({{"a", DType::kF32, Shape{3, 5}, bytes}}) ==
          "tensor 'a': shape [3, 5] of F32 needs 60 bytes, it has 48");
  }
}

TEST_CASE("matmul: no rows, no outputs and float16 are answered") {
  CHECK_FALSE(test::make_backend("cpu", 2)->supports(ComputeType::kFloat16));
  for (const std::string& name : test::backend_names()) {
    const auto backend = test::make_backend(name, 2);
    const MatmulCase c{.rows = 0, .in = 8, .out = {4}};
    CHECK(multiply(*backend, c).empty());
    const MatmulCase none{.rows = 3, .in = 8, .out = {0}};
    CHECK(multiply(*backend, none).empty());
  }
}

}  // namespace
}  // namespace kvcal
