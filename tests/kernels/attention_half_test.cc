// Attention that is written in 16 bits, or may multiply in 16 bits: what matrix instructions do.
#include "kernels/attention_case.h"

namespace kvcal {
namespace {

using test::attend;
using test::AttentionCase;
using test::kCutWeights;
using test::prefill;

/// Sums of scores of thousands have fewer digits behind the point.
constexpr double kLargeScores = 1e-4;

void check_against_reference(AttentionCase c) {
  const double limit = c.q_offset != 0.0f ? kLargeScores : 1e-6;
  const auto expected = attend(*test::make_backend("reference"), c);
  test::for_each_backend([&](Backend& backend) {
    INFO(c.what << ": head_dim " << c.head_dim << ", " << name_of(c.kv_dtype) << " cache, "
                << name_of(c.out_type) << " out, window " << c.sliding_window);
    c.product_type = ComputeType::kFloat32;
    CHECK(test::agree_as_sums(attend(backend, c), expected, limit));
    c.product_type = ComputeType::kBFloat16;
    CHECK(test::agree_as_sums(attend(backend, c), expected, std::max(limit, kCutWeights)));
  });
}

TEST_CASE("attention in 16 bits: every width and cache agrees with the reference") {
  for (const AttentionCase& c : test::width_cases()) check_against_reference(c);
}

#ifdef KVCAL_TEST_SIMULATED_GPU

TEST_CASE("attention in 16 bits: leaving the tensor cores is a warning with the reason, once") {
  const AttentionCase c{.what = "wide heads",
                        .segments = prefill({5}),
                        .head_dim = 256,
                        .kv_dtype = KvDType::kBFloat16,
                        .out_type = ComputeType::kBFloat16,
                        .product_type = ComputeType::kBFloat16};
  gpu::simulator::set_vendor_matmul(true);  // whose absence is another warning
  const auto large = test::make_backend("simulated");
  CHECK(large->kernels_used().empty());
  attend(*large, c);
  CHECK(large->take_warnings().empty());
  CHECK(large->kernels_used() == "attention on tensor cores");

  gpu::simulator::set_chip({"sm_86", size_t{99} << 10});
  const auto small = test::make_backend("simulated");
  const auto expected = attend(*test::make_backend("reference"), c);
  for (int time = 0; time < 2; ++time)
    CHECK(test::agree_as_sums(attend(*small, c), expected, kCutWeights));
  const std::vector<std::string> warnings = small->take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(
      warnings[0].starts_with("attention runs in float32 without tensor cores, which is slow: "
                              "its tiles take "));
  CHECK(
      warnings[0].ends_with("bytes of shared memory, a block of sm_86 has 101376 (head_dim 256, "
                            "bfloat16 cache)"));
  CHECK(small->kernels_used() == "attention in float32");

  AttentionCase narrow = c;
  narrow.head_dim = 64;
  attend(*small, narrow);
  CHECK(small->kernels_used() == "attention on tensor cores and in float32");
  narrow.head_dim = 20;  // no rows of 16 bytes
  attend(*small, narrow);
  CHECK(small->take_warnings() ==
        std::vector<std::string>{
            "attention runs in float32 without tensor cores, which is slow: a head's row is no "
            "multiple of 16 bytes (head_dim 20, bfloat16 cache)"});
  narrow.out_type = ComputeType::kFloat32;  // asked for
  attend(*small, narrow);
  CHECK(small->take_warnings().empty());
  gpu::simulator::set_chip({});
  gpu::simulator::set_vendor_matmul(false);
}

TEST_CASE("attention of FP8 caches: a chip that decodes them gives the same bytes") {
  for (const KvDType cache : {KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
    for (const bool is_decoding : {false, true}) {
      INFO(name_of(cache) << ", decoding " << is_decoding);
      const int64_t queries = is_decoding ? 1 : 20;
      const AttentionCase c{
          .what = "codes",
          .segments = {{.q_begin = 0, .q_count = queries, .kv_begin = 3, .kv_count = 70}},
          .heads = 4,
          .kv_heads = 1,
          .head_dim = 128,
          .kv_dtype = cache,
          .out_type = ComputeType::kBFloat16,
          .is_decoding = is_decoding};
      const auto expected = attend(*test::make_backend("simulated"), c);
      gpu::simulator::set_chip({.decodes_fp8 = true});
      const auto decoded = attend(*test::make_backend("simulated"), c);
      gpu::simulator::set_chip({});
      CHECK(test::same_bytes(decoded, expected));
    }
}

#endif

TEST_CASE("attention in 16 bits: lengths around the edges of tiles") {
  for (const int64_t tokens : {1, 63, 64, 65, 127, 128, 129})
    check_against_reference({.what = std::to_string(tokens) + " tokens",
                             .segments = prefill({tokens, 2}),
                             .heads = 4,
                             .kv_heads = 1,
                             .kv_dtype = KvDType::kFp8E4m3,
                             .out_type = ComputeType::kBFloat16});
}

TEST_CASE("attention in 16 bits: history, windows, groups, caps and sinks") {
  for (const AttentionCase& c : test::history_cases()) check_against_reference(c);
}

TEST_CASE("attention in 16 bits: slopes of ALiBi") {
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16, KvDType::kFp8E4m3})
    for (const int64_t window : {0, 40})
      check_against_reference({.what = "slopes",
                               .segments = prefill({150, 20}),
                               .heads = 6,
                               .kv_heads = 2,
                               .kv_dtype = cache,
                               .sliding_window = window,
                               .out_type = ComputeType::kBFloat16,
                               .slopes = true});
}

TEST_CASE("attention in 16 bits: scores of tens, far above and below each other") {
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16})
    for (const bool sinks : {false, true})
      for (const int64_t window : {0, 40})
        check_against_reference({.what = "tens",
                                 .segments = prefill({300}),
                                 .heads = 3,
                                 .kv_dtype = cache,
                                 .sliding_window = window,
                                 .out_type = ComputeType::kBFloat16,
                                 .deviation = 4.0f,
                                 .sinks = sinks});
}

TEST_CASE("attention in 16 bits: scores of thousands, as biases of K and Q make them") {
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16, KvDType::kFp8E4m3})
    for (const float sign : {1.0f, -1.0f})
      for (const int64_t tokens : {1, 40, 300}) {
        const bool is_small = cache == KvDType::kFp8E4m3;  // whose scale ends at 4.9
        check_against_reference({.what = std::to_string(tokens) + " tokens, biases",
                                 .segments = prefill({tokens}),
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 128,
                                 .kv_dtype = cache,
                                 .out_type = ComputeType::kBFloat16,
                                 .q_offset = sign * (is_small ? 4096.0f : 64.0f),
                                 .k_offset = is_small ? 4.0f : 352.0f});
      }
}

TEST_CASE("attention in 16 bits: a query's bytes do not depend on its neighbours") {
  for (const KvDType cache :
       {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16, KvDType::kFp8E4m3})
    for (const auto& [window, deviation] :
         {std::pair<int64_t, float>{0, 1.0f}, {50, 1.0f}, {0, 5.0f}})
      test::for_each_backend(
          [&](Backend& backend) { test::check_pieces(backend, cache, window, deviation); });
}

TEST_CASE("attention in 16 bits: queries and values of any size neither overflow nor vanish") {
  const auto reference = test::make_backend("reference");
  for (const float deviation : {1e-6f, 200.0f})
    for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16}) {
      // Equal scores: what is seen is the size of the values.
      AttentionCase c{.what = "size",
                      .segments = prefill({40}),
                      .kv_dtype = cache,
                      .out_type = ComputeType::kBFloat16,
                      .deviation = deviation};
      if (deviation > 1.0f) c.softcap = 1.0f;
      const auto expected = attend(*reference, c);
      test::for_each_backend([&](Backend& backend) {
        INFO("deviation " << deviation);
        CHECK(test::agree_as_sums(attend(backend, c), expected));
      });
    }
}

}  // namespace
}  // namespace kvcal
