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

void check_against_reference(const AttentionCase& c) {
  test::check_device("simulated", c, "attention on matrix cores");
}

TEST_CASE("attention of wavefronts: every width and cache agrees with the reference") {
  const OnWavefronts chip;
  for (const AttentionCase& c : test::width_cases()) check_against_reference(c);
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
  for (const AttentionCase& c : test::history_cases()) check_against_reference(c);
}

TEST_CASE("attention of wavefronts: scores of tens, far above and below each other") {
  const OnWavefronts chip;
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16})
    check_against_reference(test::tens_case(cache));
}

TEST_CASE("attention of wavefronts: a query's bytes do not depend on its neighbours") {
  const OnWavefronts chip;
  const auto backend = test::make_backend("simulated");
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kFp8E4m3})
    test::check_pieces(*backend, cache, 50, 1.0f);
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
