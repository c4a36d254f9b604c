#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "kernels/attention_case.h"
#include "quant/fp8.h"
#include "support/folders.h"

namespace kvcal {
namespace {

using test::OnBackend;

constexpr float kWeightScale = 1.0f / 256.0f;

std::vector<float> floats(const Json& values) {
  return values.get<std::vector<float>>();
}

/// Values as FP8 holds them.
std::vector<float> rounded(std::vector<float> values, float scale) {
  for (float& value : values)
    value =
        scale * fp8::decode(fp8::encode(value / scale, fp8::Format::kE4m3Fn), fp8::Format::kE4m3Fn);
  return values;
}

std::vector<std::byte> codes(const std::vector<float>& values, float scale) {
  std::vector<std::byte> bytes;
  for (const float value : values)
    bytes.push_back(std::byte{fp8::encode(value / scale, fp8::Format::kE4m3Fn)});
  return bytes;
}

// ---- vLLM's arithmetic, by reference/kernels_fp8_attention.py ----

std::vector<float> attend(Backend& backend, const Json& c) {
  const auto tokens = c.at("tokens").get<int64_t>(), heads = c.at("heads").get<int64_t>();
  const auto kv_heads = c.at("kv_heads").get<int64_t>(), dim = c.at("head_dim").get<int64_t>();
  const auto scale = [&](const char* key) { return c.at(key).get<float>(); };
  const auto scales = [&](const char* key) {
    return std::vector<float>(static_cast<size_t>(kv_heads), scale(key));
  };
  const OnBackend<float> q(backend, rounded(floats(c.at("q")), scale("q_scale"))),
      k_scales(backend, scales("k_scale")), v_scales(backend, scales("v_scale")),
      sinks(backend, floats(c.at("sinks")));
  const OnBackend<std::byte> k(backend, codes(floats(c.at("k")), scale("k_scale"))),
      v(backend, codes(floats(c.at("v")), scale("v_scale")));
  const OnBackend<float> out(backend, std::vector<float>(c.at("result").size(), NAN));
  const std::vector<Segment> segments = test::prefill({tokens});
  backend.attention({.q = q.data(),
                     .q_row_stride = heads * dim,
                     .k = k.data(),
                     .v = v.data(),
                     .kv_dtype = KvDType::kFp8E4m3,
                     .k_scales = k_scales.data(),
                     .v_scales = v_scales.data(),
                     .segments = segments,
                     .heads = heads,
                     .kv_heads = kv_heads,
                     .head_dim = dim,
                     .softmax_scale = scale("softmax_scale"),
                     .softcap = scale("softcap"),
                     .sinks = c.at("sinks").empty() ? nullptr : sinks.data(),
                     .sliding_window = c.at("sliding_window").get<int64_t>(),
                     .product_type = ComputeType::kBFloat16,
                     .out = out.data(),
                     .weight_scale = scale("weight_scale")});
  return out.values();
}

TEST_CASE("attention with FP8 weights: every backend computes what vLLM's kernel does") {
  const Json cases =
      parse_json(read_text(test::tests_folder() / "fixtures/kernels/fp8_attention.json"));
  REQUIRE(cases.size() == 4);
  for (const Json& c : cases)
    for (const std::string& name : test::backend_names()) {
      INFO(c.at("what").get<std::string>() << " on " << name);
      const std::vector<float> expected = floats(c.at("result"));
      CHECK(test::largest_error(attend(*test::make_backend(name), c), expected) < 1e-5);
    }
}

// ---- laws ----

TEST_CASE("attention with FP8 weights: a query of one key reads its value as it is") {
  test::AttentionCase c{.what = "first tokens", .segments = test::prefill({1, 1, 1}), .heads = 4};
  c.kv_heads = 2;
  test::for_each_backend([&](Backend& backend) {
    const auto exact = test::attend(backend, c);
    c.weight_scale = kWeightScale;
    CHECK(test::same_bytes(test::attend(backend, c), exact));
    c.weight_scale = 0.0f;
  });
}

TEST_CASE("attention with FP8 weights: rounding moves results, by less than a step of the codes") {
  for (test::AttentionCase c :
       {test::AttentionCase{
            .what = "packed", .segments = test::prefill({5, 1, 130, 33}), .heads = 6},
        test::AttentionCase{.what = "decode",
        .segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = 200}},
        .heads = 6,
        .is_decoding = true},
        test::AttentionCase{
            .what = "slopes", .segments = test::prefill({90}), .heads = 6, .slopes = true},
        test::AttentionCase{
            .what = "selection", .segments = test::prefill({90}), .heads = 6, .selected = 20}}) {
    c.kv_heads = 2;
    c.kv_dtype = KvDType::kFp8E4m3;
    const auto exact = test::attend(*test::make_backend("reference"), c);
    float largest = 0.0f;
    for (const float x : exact) largest = std::max(largest, std::abs(x));
    c.weight_scale = kWeightScale;
    test::for_each_backend([&](Backend& backend) {
      INFO(c.what);
      const auto moved = test::attend(backend, c);
      CHECK(test::largest_error(moved, exact) > 1e-4);
      CHECK(test::largest_error(moved, exact) < static_cast<double>(largest) / 8);
    });
  }
}

}  // namespace
}  // namespace kvcal
