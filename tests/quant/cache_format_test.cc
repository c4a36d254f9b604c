#include "quant/cache_format.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "quant/cache_type.h"
#include "quant/half.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

using test::contains;
using test::message_of;

/// See reference/cache_formats.py.
Json engines_values() {
  return parse_json(
      read_text(test::tests_folder().string() + "/fixtures/quant/cache_formats.json"));
}

std::vector<float> floats_of(const Json& bits) {
  std::vector<float> values;
  for (const Json& one : bits) values.push_back(float_of(one.get<uint32_t>()));
  return values;
}

/// Rows of x, each after its way through the cache.
std::vector<float> read_back(CacheFormat format, std::vector<float> x, int64_t head_dim,
                             float scale) {
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(head_dim))
    round_trip(format, &x[first], head_dim, scale);
  return x;
}

TEST_CASE("cache formats: what is read back is what the engines' kernels give, bit for bit") {
  const Json fixture = engines_values();
  const float scale = float_of(fixture.at("nvfp4_scale").get<uint32_t>());
  int compared = 0;
  for (const auto& [size, values] : fixture.at("sizes").items()) {
    const std::vector<float> x = floats_of(values.at("x"));
    REQUIRE(x.size() >= 700);
    for (const CacheFormat format : kCacheFormats) {
      const std::string name(name_of(format));
      if (!values.contains(name)) continue;
      CAPTURE(name, size);
      const std::vector<float> actual = read_back(format, x, std::stoll(size), scale);
      std::vector<uint32_t> bits;
      for (const float value : actual) bits.push_back(bits_of(value));
      CHECK(bits == values.at(name).get<std::vector<uint32_t>>());
      ++compared;
    }
  }
  CHECK(compared == 9);  // five formats of heads of 64, and of 96 all but mxfp8
}

TEST_CASE("cache formats: calibrated INT8 is nearest, ties to even, within [-128, 127]") {
  std::vector<float> x{0.0f, 0.5f, 1.5f, -2.5f, 126.6f, 127.5f, 500.0f, -128.4f, -129.0f, 3.49f};
  for (float& value : x) value *= 0.25f;
  std::vector<float> expected{0, 0, 2, -2, 127, 127, 127, -128, -128, 3};
  for (float& value : expected) value *= 0.25f;
  CHECK(read_back(CacheFormat::kInt8, x, 10, 0.25f) == expected);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(read_back(CacheFormat::kInt8, {nan}, 1, 1.0f)[0]));
}

TEST_CASE("cache formats: NVFP4's values are E2M1's") {
  for (int step = -1600; step <= 1600; ++step) {
    const float x = static_cast<float>(step) / 200.0f;
    CAPTURE(x);
    CHECK(cache_formats::nvfp4::nearest_e2m1(x) == e2m1::decode(e2m1::encode(x)));
    CHECK(std::signbit(cache_formats::nvfp4::nearest_e2m1(x)) == std::signbit(x));
  }
}

TEST_CASE("cache formats: the signs of the rotation are the Mersenne Twister's") {
  using namespace cache_formats::int4_per_token_head;
  std::mt19937 random(kSignSeed);
  const Signs signs;
  for (size_t i = 0; i < static_cast<size_t>(kMostSigns); ++i) {
    // torch.bernoulli compares 24 bits with a half.
    const bool is_negative = (random() & 0xffffffu) >= 0x800000u;
    CHECK((signs.words[i / 64] >> (i % 64) & 1u) == (is_negative ? 1u : 0u));
  }
}

TEST_CASE("cache formats: bytes of a head are those of vLLM's pages") {
  // vLLM 0.32 v1/kv_cache_interface.py: data and float32 scales; nvfp4_kv_cache_full_dim.
  const auto bytes = [](CacheFormat format, int64_t dim) {
    return bytes_of_head(CacheType(format), dim);
  };
  CHECK(bytes(CacheFormat::kFp8PerTokenHead, 128) == 132);
  CHECK(bytes(CacheFormat::kInt8PerTokenHead, 64) == 68);
  CHECK(bytes(CacheFormat::kInt4PerTokenHead, 128) == 68);
  CHECK(bytes(CacheFormat::kNvfp4, 128) == 72);
  CHECK(bytes(CacheFormat::kMxfp8, 128) == 132);
  CHECK(bytes(CacheFormat::kInt8, 128) == 128);
  CHECK(bytes_of_head(CacheType(KvDType::kFp8E4m3), 128) == 128);
  CHECK(bytes_of_head(CacheType(KvDType::kBFloat16), 128) == 256);
}

TEST_CASE("cache types have the names that engines give them") {
  for (const CacheFormat format : kCacheFormats)
    CHECK(parse_cache_type(name_of(format)) == CacheType(format));
  CHECK(parse_cache_type("INT8-per-token-head") == CacheType(CacheFormat::kInt8PerTokenHead));
  CHECK(parse_cache_type("fp8") == CacheType(KvDType::kFp8E4m3));
  CHECK(is_quantized(CacheFormat::kMxfp8));
  CHECK(!needs_scales(CacheFormat::kMxfp8));
  CHECK(needs_scales(CacheFormat::kNvfp4));
  CHECK(needs_scales(KvDType::kFp8E5m2));
  CHECK(!is_quantized(KvDType::kFloat16));
  const std::string message = message_of([] { parse_cache_type("nvfp5"); });
  CHECK(contains(message, "unknown KV cache dtype 'nvfp5' (did you mean 'nvfp4'?)"));
  CHECK(contains(message, "known are float32, "));
}

}  // namespace
}  // namespace kvcal
