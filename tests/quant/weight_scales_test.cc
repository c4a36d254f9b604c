#include "quant/weight_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/hash.h"
#include "core/json.h"
#include "expected_codes.h"
#include "quant/half.h"
#include "quant/weight_loops.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

float element_at(const TensorView& weight, uint64_t index) {
  const std::byte* const bytes =
      weight.bytes.data() + index * weight_loops::bytes_of_element(weight.dtype);
  uint16_t half = 0;
  float value = 0;
  if (weight.dtype == DType::kF32) {
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  std::memcpy(&half, bytes, sizeof(half));
  return weight.dtype == DType::kF16 ? to_float(F16{half}) : to_float(BF16{half});
}

/// Relative error of scale x code: the root of the summed squared differences over that of the
/// summed squared weights, exact products, sums in double; 0 for a weight of zeros that stays
/// zeros.
double reconstruction_error(const TensorView& weight, std::span<const uint8_t> codes,
                            const ScaleGrid& grid, std::span<const Scale> scales) {
  double squares = 0, error_squares = 0;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column) {
      const auto index = static_cast<uint64_t>(row * grid.columns + column);
      const double value = element_at(weight, index);
      const double scale = scales[static_cast<size_t>(grid.scale_of(row, column))].value;
      const double error = scale * fp8::decode(codes[index], fp8::Format::kE4m3Fn) - value;
      squares += value * value;
      error_squares += error * error;
    }
  }
  if (error_squares == 0) return 0;
  return std::sqrt(error_squares / squares);
}

/// reference/quant_weights.py describes the files.
struct Fixture {
  Json cases =
      parse_json(read_text(test::tests_folder().string() + "/fixtures/quant/weights.json"));
  std::vector<uint8_t> bytes = test::read_expected<uint8_t>("weights.bin");

  std::span<const uint8_t> at(const Json& place) const {
    return std::span(bytes).subspan(place[0].get<size_t>(), place[1].get<size_t>());
  }
};

QuantArgs args_of(const std::string& strategy, std::vector<int64_t> block = {}) {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = strategy == "tensor"    ? Strategy::kTensor
                  : strategy == "channel" ? Strategy::kChannel
                                          : Strategy::kBlock;
  if (!block.empty()) args.block_structure = std::move(block);
  return args;
}

QuantArgs args_from(const Json& args) {
  const auto block = args.find("block_structure");
  return args_of(args["strategy"].get<std::string>(),
                 block == args.end() ? std::vector<int64_t>{} : block->get<std::vector<int64_t>>());
}

Shape shape_of(const Json& dims) {
  return Shape(dims.get<std::vector<int64_t>>());
}

std::vector<uint16_t> finite_patterns(DType dtype) {
  std::vector<uint16_t> patterns;
  const uint32_t infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    if ((bits & 0x7fff) < infinity) patterns.push_back(static_cast<uint16_t>(bits));
  return patterns;
}

Tensor weight_of(const Fixture& fixture, const Json& one) {
  Tensor weight{"w", *dtype_from_name(one["dtype"].get<std::string>()), shape_of(one["shape"]), {}};
  if (one.contains("patterns")) {
    const auto patterns = finite_patterns(weight.dtype);
    const auto bytes = std::as_bytes(std::span(patterns));
    weight.bytes.assign(bytes.begin(), bytes.end());
  } else {
    const auto bytes = std::as_bytes(fixture.at(one["weight"]));
    weight.bytes.assign(bytes.begin(), bytes.end());
  }
  return weight;
}

std::vector<uint8_t> codes_of(const TensorView& weight, const WeightScales& scales,
                              ScaleArithmetic arithmetic) {
  std::vector<uint8_t> codes(element_count(weight.shape));
  WeightCoder(weight, scales.grid, scales.scales, arithmetic).encode(0, codes);
  return codes;
}

void check_scales(const std::vector<Scale>& found, std::span<const uint8_t> expected) {
  REQUIRE(found.size() * sizeof(float) == expected.size());
  test::Mismatches mismatches;
  for (size_t i = 0; i < found.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, expected.data() + 4 * i, 4);
    mismatches.compare(static_cast<uint32_t>(i), bits_of(found[i].value), bits);
  }
  CHECK(mismatches.text() == "");
}

Tensor bf16_weight(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor weight{"w", DType::kBF16, {rows, columns}, {}};
  weight.bytes.resize(static_cast<size_t>(rows * columns) * 2);
  for (size_t i = 0; i < weight.bytes.size(); i += 2) {
    // The sum of a few uniform numbers: a bell, from arithmetic that is the same everywhere.
    float sum = 0;
    for (int k = 0; k < 6; ++k) sum += static_cast<float>(random() >> 8) * 0x1p-24f - 0.5f;
    const BF16 value = to_bf16(sum * 0.03f);
    std::memcpy(weight.bytes.data() + i, &value, 2);
  }
  return weight;
}

void set(Tensor& weight, size_t index, float value) {
  const BF16 half = to_bf16(value);
  std::memcpy(weight.bytes.data() + 2 * index, &half, 2);
}

}  // namespace

TEST_CASE("weight_scales: scales and codes are compressed-tensors', bit for bit") {
  const Fixture fixture;
  int checked = 0;
  for (const Json& one : fixture.cases) {
    INFO(one.dump());
    const Tensor weight = weight_of(fixture, one);
    const QuantArgs args = args_from(one["args"]);
    const auto arithmetic =
        one["arithmetic"] == "model" ? ScaleArithmetic::kModelDtype : ScaleArithmetic::kFloat32;
    const WeightScales scales = weight_scales(weight.view(), args, arithmetic, nullptr);
    check_scales(scales.scales, fixture.at(one["scales"]));
    if (one.contains("scale_shape"))
      CHECK(scales.grid.scale_shape(*args.strategy) == shape_of(one["scale_shape"]));
    const std::vector<uint8_t> codes = codes_of(weight.view(), scales, arithmetic);
    if (one.contains("patterns")) {
      CHECK(sha256_hex({reinterpret_cast<const char*>(codes.data()), codes.size()}) ==
            one["sha256"].get<std::string>());
    } else {
      const auto expected = fixture.at(one["codes"]);
      REQUIRE(codes.size() == expected.size());
      test::Mismatches mismatches;
      for (size_t i = 0; i < codes.size(); ++i)
        mismatches.compare(static_cast<uint32_t>(i), codes[i], expected[i]);
      CHECK(mismatches.text() == "");
    }
    if (one.contains("error"))
      CHECK(reconstruction_error(weight.view(), codes, scales.grid, scales.scales) ==
            Approx(one["error"].get<double>()).epsilon(1e-12));
    ++checked;
  }
  CHECK(checked == 210);
}

TEST_CASE("weight_scales: amax is that of the block, whatever range is chosen") {
  Tensor weight = bf16_weight(5, 6, 1);
  set(weight, 7, -4.0f);
  for (const char* observer : {"memoryless_minmax", "mse"}) {
    QuantArgs args = args_of("channel");
    args.observer = observer;
    const WeightScales scales =
        weight_scales(weight.view(), args, ScaleArithmetic::kFloat32, nullptr);
    REQUIRE(scales.amax.size() == 5);
    CHECK(scales.amax[1].value == 4.0f);
    CHECK(scales.amax[0].value < 0.1f);
  }
}

TEST_CASE("weight_scales: any number of threads gives the same bits") {
  const Tensor weight = bf16_weight(700, 900, 2);  // more than one chunk
  ThreadPool pool(3);
  for (const QuantArgs& base : {args_of("tensor"), args_of("channel"), args_of("block", {128, 128}),
                                args_of("block", {1000, 1000})}) {
    for (const char* observer : {"memoryless_minmax", "mse"}) {
      for (const auto arithmetic : {ScaleArithmetic::kFloat32, ScaleArithmetic::kModelDtype}) {
        QuantArgs args = base;
        args.observer = observer;
        const WeightScales alone = weight_scales(weight.view(), args, arithmetic, nullptr);
        const WeightScales together = weight_scales(weight.view(), args, arithmetic, &pool);
        CHECK(std::equal(alone.scales.begin(), alone.scales.end(), together.scales.begin(),
                         together.scales.end(),
                         [](Scale a, Scale b) { return a.value == b.value; }));
      }
    }
  }
}

TEST_CASE("WeightCoder: any cut of the elements gives the same codes, at any address") {
  const Tensor aligned = bf16_weight(45, 83, 3);
  std::vector<std::byte> moved(aligned.bytes.size() + 1);
  std::copy(aligned.bytes.begin(), aligned.bytes.end(), moved.begin() + 1);
  const TensorView weight{"w", DType::kBF16, aligned.shape, std::span(moved).subspan(1)};
  for (const QuantArgs& args :
       {args_of("tensor"), args_of("channel"), args_of("block", {16, 32})}) {
    const WeightScales scales = weight_scales(weight, args, ScaleArithmetic::kFloat32, nullptr);
    const WeightCoder coder(weight, scales.grid, scales.scales, ScaleArithmetic::kFloat32);
    const auto whole = codes_of(aligned.view(), scales, ScaleArithmetic::kFloat32);
    for (const size_t step : {1, 7, 83, 500}) {
      std::vector<uint8_t> codes(whole.size());
      for (size_t first = 0; first < codes.size(); first += step)
        coder.encode(first, std::span(codes).subspan(first, std::min(step, codes.size() - first)));
      CHECK(codes == whole);
    }
  }
}

TEST_CASE("weight_scales: in float32 no weight is further off than llm-compressor's") {
  for (uint32_t seed = 10; seed < 40; ++seed) {
    const Tensor weight = bf16_weight(24, 32, seed);
    for (const QuantArgs& args :
         {args_of("tensor"), args_of("channel"), args_of("block", {16, 16})}) {
      double errors[2];
      for (const auto arithmetic : {ScaleArithmetic::kFloat32, ScaleArithmetic::kModelDtype}) {
        const WeightScales scales = weight_scales(weight.view(), args, arithmetic, nullptr);
        const auto codes = codes_of(weight.view(), scales, arithmetic);
        errors[arithmetic == ScaleArithmetic::kFloat32] =
            reconstruction_error(weight.view(), codes, scales.grid, scales.scales);
      }
      INFO(name_of(*args.strategy) << ", seed " << seed);
      CHECK(errors[1] <= errors[0]);
    }
  }
}

TEST_CASE("weight_scales: NaN and infinity are named by tensor and element") {
  const auto message = [](const Tensor& weight, const QuantArgs& args, ThreadPool* pool) {
    try {
      weight_scales(weight.view(), args, ScaleArithmetic::kFloat32, pool);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  Tensor weight = bf16_weight(600, 700, 4);
  weight.name = "model.layers.0.mlp.up_proj.weight";
  set(weight, 599 * 700 + 2, -std::numeric_limits<float>::infinity());
  set(weight, 300 * 700 + 699, std::numeric_limits<float>::quiet_NaN());
  ThreadPool pool(2);
  for (const QuantArgs& args : {args_of("tensor"), args_of("channel"), args_of("block", {64, 64})})
    for (ThreadPool* used : {static_cast<ThreadPool*>(nullptr), &pool})
      CHECK(
          message(weight, args, used) ==
          "model.layers.0.mlp.up_proj.weight: element [300, 699] is NaN, expected finite weights");
  set(weight, 300 * 700 + 699, 0.0f);
  CHECK(message(weight, args_of("tensor"), nullptr) ==
        "model.layers.0.mlp.up_proj.weight: element [599, 2] is infinite, expected finite weights");
}

TEST_CASE("weight_scales: what it cannot do is an error that says so") {
  const auto message = [](const Tensor& weight, const QuantArgs& args) {
    try {
      weight_scales(weight.view(), args, ScaleArithmetic::kFloat32, nullptr);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  Tensor weight = bf16_weight(4, 8, 5);
  QuantArgs args = args_of("tensor");
  args.observer = "percentile";
  CHECK(message(weight, args) ==
        "w: observer of weights: found 'percentile', expected memoryless_minmax or mse");
  args = args_of("tensor");
  args.strategy = Strategy::kToken;
  CHECK(message(weight, args) ==
        "w: strategy of weights: found token, expected tensor, channel, block, group or "
        "tensor_group");
  args.strategy = Strategy::kGroup;
  CHECK(message(weight, args) == "w: strategy group: expected a positive group_size");
  args.group_size = 3;
  CHECK(message(weight, args) == "w: 8 inputs are no whole groups of 3");
  CHECK(message(weight, args_of("block")) ==
        "w: strategy block: expected block_structure with two positive numbers");
  CHECK(message(weight, args_of("block", {128, 0})) ==
        "w: strategy block: expected block_structure with two positive numbers");
  weight.shape = {32};
  CHECK(message(weight, args_of("tensor")) == "w: shape [32], expected a matrix with elements");
  weight.shape = {0, 8};
  weight.bytes.clear();
  CHECK(message(weight, args_of("tensor")) == "w: shape [0, 8], expected a matrix with elements");
  weight.shape = {2, 3};
  CHECK(message(weight, args_of("tensor")) == "w: found 0 bytes, expected 12 for [2, 3]");
  weight.dtype = DType::kF8E4M3;
  CHECK(message(weight, args_of("tensor")) == "w: found F8_E4M3, expected F16, BF16 or F32");
}

TEST_CASE("WeightCoder: a scale that is not finite and positive is refused") {
  const Tensor weight = bf16_weight(4, 8, 6);
  const ScaleGrid grid = scale_grid(args_of("tensor"), weight.shape);
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    const Scale scales[]{{scale}};
    CHECK_THROWS_AS(WeightCoder(weight.view(), grid, scales, ScaleArithmetic::kFloat32), Error);
  }
}

TEST_CASE("reconstruction_error: zeros that stay zeros are exact") {
  Tensor weight{"w", DType::kF16, {2, 3}, std::vector<std::byte>(12)};
  const WeightScales scales =
      weight_scales(weight.view(), args_of("tensor"), ScaleArithmetic::kFloat32, nullptr);
  CHECK(scales.scales[0].value == std::numeric_limits<float>::epsilon());
  const auto codes = codes_of(weight.view(), scales, ScaleArithmetic::kFloat32);
  CHECK(reconstruction_error(weight.view(), codes, scales.grid, scales.scales) == 0.0);
}

TEST_CASE("zero_scale: the epsilon of the dtype that scales are computed in") {
  CHECK(zero_scale(DType::kF16, ScaleArithmetic::kModelDtype) == 0x1p-10f);
  CHECK(zero_scale(DType::kBF16, ScaleArithmetic::kModelDtype) == 0x1p-7f);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    CHECK(zero_scale(dtype, ScaleArithmetic::kFloat32) == 0x1p-23f);
  CHECK(zero_scale(DType::kF32, ScaleArithmetic::kModelDtype) == 0x1p-23f);
}
