// Attention with the matrix instructions of wavefronts, on a simulated chip that has them.
#ifdef KVCAL_TEST_SIMULATED_GPU

#include "kernels/attention_case.h"

namespace kvcal {
namespace {

using gpu::simulator::Order;
using test::attend;
using test::AttentionCase;
using test::OnWavefronts;
using test::prefill;

void check_against_reference(AttentionCase c) {
  INFO(c.what << ": head_dim " << c.head_dim << ", " << name_of(c.kv_dtype) << " cache, window "
              << c.sliding_window);
  c.product_type = ComputeType::kBFloat16;
  const auto expected = attend(*test::make_backend("reference"), c);
  const auto backend = test::make_backend("simulated");
  CHECK(test::agree_as_sums(attend(*backend, c), expected, 4e-6));  // as attention_half_test.cc
  CHECK(backend->kernels_used() == "attention on matrix cores");
}

TEST_CASE("attention of wavefronts: every width and cache agrees with the reference") {
  const OnWavefronts chip;
  for (const int64_t head_dim : {64, 80, 96, 128, 192, 256})
    for (const KvDType cache : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                                KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
      check_against_reference(
          {.what = "width",
           .segments = {{.q_begin = 0, .q_count = 20, .kv_begin = 3, .kv_count = 70}},
           .heads = 2,
           .kv_heads = 1,
           .head_dim = head_dim,
           .kv_dtype = cache,
           .out_type = head_dim % 128 == 0 ? ComputeType::kFloat16 : ComputeType::kBFloat16});
}

TEST_CASE("attention of wavefronts: in any order of threads") {
  const OnWavefronts chip;
  for (const Order order : {Order::kReverse, Order::kGreedy}) {
    gpu::simulator::set_order(order);
    for (const KvDType cache : {KvDType::kFloat32, KvDType::kFp8E4m3})
      check_against_reference({.what = "order",
                               .segments = prefill({130, 2}),
                               .heads = 4,
                               .kv_heads = 1,
                               .head_dim = 128,
                               .kv_dtype = cache,
                               .out_type = ComputeType::kBFloat16});
  }
  gpu::simulator::set_order(Order::kForward);
}

TEST_CASE("attention of wavefronts: history, windows, groups, caps and sinks") {
  const OnWavefronts chip;
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16, KvDType::kFp8E5m2}) {
    AttentionCase c{.what = "history",
                    .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 5, .kv_count = 200},
                                 {.q_begin = 30, .q_count = 0, .kv_begin = 0, .kv_count = 0},
                                 {.q_begin = 30, .q_count = 7, .kv_begin = 205, .kv_count = 7}},
                    .heads = 8,
                    .kv_heads = 2,
                    .kv_dtype = cache,
                    .out_type = ComputeType::kBFloat16,
                    .extra_stride = 3};
    for (const int64_t window : {0, 1, 17, 65}) {
      c.sliding_window = window;
      check_against_reference(c);
    }
    c.what = "group of eight, cap and sinks";
    c.kv_heads = 1;
    c.softcap = 3.0f;
    c.sinks = true;
    check_against_reference(c);
    c.what = "group of seven, narrower values";
    c.heads = 7;
    c.head_dim = 96;
    c.v_head_dim = 48;
    check_against_reference(c);
  }
}

TEST_CASE("attention of wavefronts: scores of tens, far above and below each other") {
  const OnWavefronts chip;
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16})
    check_against_reference({.what = "tens",
                             .segments = prefill({300}),
                             .heads = 3,
                             .kv_dtype = cache,
                             .sliding_window = 40,
                             .out_type = ComputeType::kBFloat16,
                             .deviation = 4.0f,
                             .sinks = true});
}

TEST_CASE("attention of wavefronts: a query's bytes do not depend on its neighbours") {
  const OnWavefronts chip;
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
    AttentionCase c{.what = "split",
                    .segments = prefill({150}),
                    .heads = 6,
                    .kv_heads = 2,
                    .kv_dtype = cache,
                    .sliding_window = 50,
                    .out_type = ComputeType::kBFloat16,
                    .product_type = ComputeType::kBFloat16};
    const int64_t row = c.heads * c.head_dim;
    const auto backend = test::make_backend("simulated");
    const auto expected = attend(*backend, c);
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {63, 65}, {90, 107}, {149, 150}}) {
      c.segments = {{.q_begin = begin, .q_count = end - begin, .kv_begin = 0, .kv_count = end}};
      const auto actual = attend(*backend, c);
      INFO("queries " << begin << " to " << end);
      CHECK(test::same_bytes(
          std::vector<float>(actual.begin() + begin * row, actual.begin() + end * row),
          std::vector<float>(expected.begin() + begin * row, expected.begin() + end * row)));
    }
  }
}

TEST_CASE("attention of wavefronts: shapes and chips that are left to float32 arithmetic") {
  gpu::simulator::set_vendor_matmul(true);  // whose absence is another warning
  const AttentionCase c{.what = "width of 20",
                        .segments = prefill({5}),
                        .head_dim = 20,
                        .out_type = ComputeType::kBFloat16,
                        .product_type = ComputeType::kBFloat16};
  const OnWavefronts chip;
  const auto backend = test::make_backend("simulated");
  CHECK(test::agree_as_sums(attend(*backend, c), attend(*test::make_backend("reference"), c)));
  CHECK(backend->kernels_used() == "attention in float32");
  CHECK(backend->take_warnings() ==
        std::vector<std::string>{
            "attention runs in float32 without matrix cores, which is slow: a head's width is no "
            "multiple of 8 (head_dim 20, float32 cache)"});
  gpu::simulator::set_vendor_matmul(false);
}

}  // namespace
}  // namespace kvcal

#endif
