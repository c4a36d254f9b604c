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

/// Of hexadecimal bits, eight digits a value.
std::vector<float> floats_of(const Json& bits) {
  const auto digits = bits.get<std::string>();
  std::vector<float> values;
  for (size_t i = 0; i < digits.size(); i += 8)
    values.push_back(float_of(static_cast<uint32_t>(std::stoul(digits.substr(i, 8), nullptr, 16))));
  return values;
}

/// Rows of x, each after its way through the cache.
std::vector<float> read_back(CacheFormat format, std::vector<float> x, CachedHead head) {
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(head.size)) {
    head.x = &x[first];
    round_trip(format, head);
  }
  return x;
}

std::vector<uint32_t> bits_of_all(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(bits_of(value));
  return bits;
}

/// Fails where a value of rows differs by more than share of the row's amax.
void check_near(const std::vector<float>& actual, const std::vector<float>& expected, size_t size,
                float share) {
  REQUIRE(actual.size() == expected.size());
  for (size_t first = 0; first < actual.size(); first += size) {
    const float amax = cache_formats::amax_of(&expected[first], static_cast<int64_t>(size));
    for (size_t i = first; i < first + size; ++i)
      if (!(std::fabs(actual[i] - expected[i]) <= share * amax))
        FAIL("value " << i << " is " << actual[i] << ", expected " << expected[i]);
  }
}

/// Compares what is read of rows x with the engine's, K and V. Returns how many were compared.
int check_format(CacheFormat format, const Json& engines, const std::vector<float>& x,
                 const CachedHead& head) {
  const std::string name(name_of(format));
  if (!engines.contains(name)) return 0;
  const Json& read = engines.at(name);
  // A product with the rotation's matrix, whose order of sums is open.
  const bool is_near = name.starts_with("turboquant") && name != "turboquant_k8v4";
  for (const bool is_value : {false, true}) {
    CachedHead side = head;
    side.is_value = is_value;
    CAPTURE(name, head.size, head.rotated, is_value);
    const auto expected = floats_of(read.is_object() ? read.at(is_value ? "v" : "k") : read);
    const std::vector<float> actual = read_back(format, x, side);
    if (is_near && !is_value) {
      check_near(actual, expected, static_cast<size_t>(head.size), 1e-6f);
    } else {
      CHECK(bits_of_all(actual) == bits_of_all(expected));
    }
  }
  return 1;
}

TEST_CASE("cache formats: what is read back is what the engines' kernels give, bit for bit") {
  const Json fixture = engines_values();
  const float scale = floats_of(fixture.at("nvfp4_scale"))[0];
  int compared = 0;
  for (const auto& [size, values] : fixture.at("sizes").items()) {
    const std::vector<float> x = floats_of(values.at("x"));
    REQUIRE(x.size() >= 700);
    for (const CacheFormat format : kCacheFormats)
      compared += check_format(format, values, x, {.size = std::stoll(size), .scale = scale});
  }
  // Of heads of 64: fp8, int8 and int4_per_token_head, nvfp4, nvfp4_4over6, fp4_mx_block16,
  // turboquant_k8v4, mxfp8, ultraquant_4bit. Of 96 without the last two.
  CHECK(compared == 9 + 7);
}

TEST_CASE("cache formats: TurboQuant's rotated keys within float32's rounding, V bit for bit") {
  int compared = 0;
  const Json fixture = engines_values();
  for (const auto& [size, values] : fixture.at("turboquant").items()) {
    const std::vector<float> x = floats_of(values.at("x"));
    REQUIRE(x.size() >= 500);
    for (const CacheFormat format : kCacheFormats)
      compared += check_format(format, values, x, {.size = std::stoll(size)});
  }
  CHECK(compared == 6);
}

TEST_CASE("cache formats: Octave's blocks, of K that RoPE rotates in part") {
  int compared = 0;
  const Json fixture = engines_values();
  for (const Json& values : fixture.at("octave")) {
    const std::vector<float> x = floats_of(values.at("x"));
    const CachedHead head{.size = std::ssize(x) / 8, .rotated = values.at("rotary")};
    for (const CacheFormat format : kCacheFormats)
      compared += check_format(format, values, x, head);
  }
  CHECK(compared == 8);  // compact K needs a power of two
}

TEST_CASE("cache formats: a latent and its rotated key") {
  const Json latents = engines_values().at("latents");
  const std::vector<float> k = floats_of(latents.at("x").at("k"));
  const std::vector<float> v = floats_of(latents.at("x").at("v"));
  for (const CacheFormat format : {CacheFormat::kFp8DsMla, CacheFormat::kNvfp4DsMla}) {
    const Json& read = latents.at(std::string(name_of(format)));
    CAPTURE(name_of(format));
    CHECK(bits_of_all(read_back(format, k, {.size = 512})) == bits_of_all(floats_of(read.at("k"))));
    CHECK(bits_of_all(read_back(format, v, {.size = 64, .is_value = true})) ==
          bits_of_all(floats_of(read.at("v"))));
  }
}

template <int kBits>
std::vector<float> codebook_of(int64_t size) {
  const auto half = cache_formats::turboquant::codebook_of<kBits>(size);
  std::vector<float> values;
  for (int i = 0; i < 1 << kBits; ++i)
    values.push_back(cache_formats::turboquant::value_of<kBits>(half, i));
  return values;
}

TEST_CASE("cache formats: TurboQuant's codebooks are the engine's for all sizes of heads") {
  int compared = 0;
  const Json fixture = engines_values();
  for (const auto& [size, books] : fixture.at("centroids").items()) {
    CAPTURE(size);
    CHECK(codebook_of<3>(std::stoll(size)) == floats_of(books.at("3")));
    CHECK(codebook_of<4>(std::stoll(size)) == floats_of(books.at("4")));
    ++compared;
  }
  CHECK(compared == 6);
}

TEST_CASE("cache formats: calibrated INT8 is nearest, ties to even, within [-128, 127]") {
  std::vector<float> x{0.0f, 0.5f, 1.5f, -2.5f, 126.6f, 127.5f, 500.0f, -128.4f, -129.0f, 3.49f};
  for (float& value : x) value *= 0.25f;
  std::vector<float> expected{0, 0, 2, -2, 127, 127, 127, -128, -128, 3};
  for (float& value : expected) value *= 0.25f;
  CHECK(read_back(CacheFormat::kInt8, x, {.size = 10, .scale = 0.25f}) == expected);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(read_back(CacheFormat::kInt8, {nan}, {.size = 1})[0]));
}

TEST_CASE("cache formats: NVFP4's values are E2M1's") {
  for (int step = -1600; step <= 1600; ++step) {
    const float x = static_cast<float>(step) / 200.0f;
    CAPTURE(x);
    CHECK(cache_formats::nearest_e2m1(x) == e2m1::decode(e2m1::encode(x)));
    CHECK(std::signbit(cache_formats::nearest_e2m1(x)) == std::signbit(x));
  }
}

/// Signs that is_negative makes of the numbers that the seed's Mersenne Twister draws.
template <class IsNegative>
void check_signs(const cache_formats::Signs& signs, uint32_t seed, const IsNegative& is_negative) {
  std::mt19937 random(seed);
  for (size_t i = 0; i < static_cast<size_t>(cache_formats::kMostSigns); ++i)
    CHECK((signs.words[i / 64] >> (i % 64) & 1u) == (is_negative(random()) ? 1u : 0u));
}

TEST_CASE("cache formats: the signs of rotations are the Mersenne Twister's") {
  namespace int4 = cache_formats::int4_per_token_head;
  // torch.bernoulli compares 24 bits with a half.
  check_signs(int4::kSigns, int4::kSignSeed,
              [](auto drawn) { return (drawn & 0xffffffu) >= 0x800000u; });
  // torch.randint of two takes the last bit.
  namespace octave = cache_formats::octave;
  check_signs(octave::kSigns, octave::kSignSeed, [](auto drawn) { return (drawn & 1u) != 0; });
}

TEST_CASE("cache formats: bytes of a head's K and V are those of the engines' pages") {
  const auto bytes = [](const CacheType& type, int64_t dim, int64_t rotated = 0) {
    return bytes_of(type, {.k = dim, .v = dim, .rotated = rotated == 0 ? dim : rotated});
  };
  // vLLM 0.33 v1/kv_cache_interface.py: data and float32 scales; nvfp4_kv_cache_full_dim.
  CHECK(bytes(CacheFormat::kFp8PerTokenHead, 128) == 2 * 132);
  CHECK(bytes(CacheFormat::kInt8PerTokenHead, 64) == 2 * 68);
  CHECK(bytes(CacheFormat::kInt4PerTokenHead, 128) == 2 * 68);
  CHECK(bytes(CacheFormat::kNvfp4, 128) == 2 * 72);
  CHECK(bytes(CacheFormat::kNvfp4FourOverSix, 128) == 2 * 72);
  CHECK(bytes(CacheFormat::kFp4MxBlock16, 128) == 2 * 72);
  CHECK(bytes(CacheFormat::kMxfp8, 128) == 2 * 132);
  CHECK(bytes(CacheFormat::kInt8, 128) == 2 * 128);
  // `TurboQuantConfig.slot_size_aligned`
  CHECK(bytes(CacheFormat::kTurboquantK8V4, 128) == 128 + 68);
  CHECK(bytes(CacheFormat::kTurboquant4Bit, 128) == 66 + 68);
  CHECK(bytes(CacheFormat::kTurboquantK3V4, 128) == 50 + 68);
  CHECK(bytes(CacheFormat::kTurboquant3Bit, 128) == 50 + 52);
  // `OctaveFormat.slot_bytes`
  CHECK(bytes(CacheFormat::kOctaveK3V4, 256, 64) == 248);
  CHECK(bytes(CacheFormat::kOctaveK3V3, 256, 64) == 216);
  CHECK(bytes(CacheFormat::kOctaveCompact, 256, 64) == 196);
  // ultraquant/format.py
  CHECK(bytes(CacheFormat::kUltraquant4Bit, 256) == 272);
  CHECK(bytes(CacheFormat::kUltraquant4Bit, 128) == 136);
  // mla_attention.py, `state_content_bytes`
  CHECK(bytes_of(CacheType(CacheFormat::kFp8DsMla), {.k = 512, .v = 64}) == 656);
  CHECK(bytes_of(CacheType(CacheFormat::kNvfp4DsMla), {.k = 512, .v = 64}) == 352);
  CHECK(bytes(KvDType::kFp8E4m3, 128) == 2 * 128);
  CHECK(bytes(KvDType::kBFloat16, 128) == 2 * 256);
}

TEST_CASE("INT8 codes by tensor, head and channel are compressed-tensors' and vLLM-Ascend's") {
  // See reference/int8_cache.py.
  const Json fixture =
      parse_json(read_text(test::tests_folder().string() + "/fixtures/quant/int8_cache.json"));
  const auto heads = fixture.at("heads").get<size_t>(), dim = fixture.at("dim").get<size_t>();
  const std::vector<float> x = floats_of(fixture.at("x"));
  REQUIRE(fixture.at("cases").size() == 6);
  for (const auto& [name, expected] : fixture.at("cases").items()) {
    CAPTURE(name);
    const std::vector<float> scales = floats_of(expected.at("scales"));
    std::vector<float> read = x;
    std::vector<int64_t> clipped(heads, 0);
    for (size_t first = 0; first < x.size(); first += dim) {
      const size_t head = first / dim % heads;
      CachedHead place{.x = &read[first], .size = static_cast<int64_t>(dim)};
      if (scales.size() == heads * dim)
        place.scales = &scales[head * dim];
      else
        place.scale = scales[scales.size() == 1 ? 0 : head];
      clipped[head] += count_clipped(CacheFormat::kInt8, place);
      round_trip(CacheFormat::kInt8, place);
    }
    CHECK(read == floats_of(expected.at("read")));  // -0 is torch's, and no code
    CHECK(clipped == expected.at("clipped").get<std::vector<int64_t>>());
  }
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
  const std::string message = message_of([] { parse_cache_type("nvpf4"); });
  CHECK(contains(message, "unknown KV cache dtype 'nvpf4' (did you mean 'nvfp4'?)"));
  CHECK(contains(message, "known are float32, "));
}

}  // namespace
}  // namespace kvcal
