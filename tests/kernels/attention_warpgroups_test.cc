// Attention with the matrix instructions of warpgroups, on a simulated chip that has them, and on
// this machine's GPU where it has.
#include "kernels/attention_case.h"
#include "kernels/gpu/chips.h"
#include "kernels/gpu/matrix_panel.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

using test::attend;
using test::AttentionCase;
using test::OnWarpgroups;
using test::prefill;

constexpr const char* kUsed = "attention on tensor cores by wgmma";

void check_against_reference(const OnWarpgroups& chips, const AttentionCase& c) {
  for (const std::string& device : chips.devices()) test::check_device(device, c, kUsed);
}

/// Runs body, on the simulated device with its threads in every order.
template <class Body>
void in_every_order(const Body& body) {
#ifdef KVCAL_TEST_SIMULATED_GPU
  using gpu::simulator::Order;
  for (const Order order : {Order::kReverse, Order::kGreedy, Order::kForward}) {
    gpu::simulator::set_order(order);
    body();
  }
#else
  body();
#endif
}

TEST_CASE("attention of warpgroups: every width and cache agrees with the reference") {
  const OnWarpgroups chips;
  for (const AttentionCase& c : test::width_cases()) {
    const bool is_left_to_warps =
        c.kv_dtype == KvDType::kFloat32 || (c.kv_dtype == KvDType::kBFloat16 && c.head_dim > 128);
    for (const std::string& device : chips.devices())
      test::check_device(device, c, is_left_to_warps ? "attention on tensor cores" : kUsed);
  }
}

TEST_CASE("attention of warpgroups: tiles of keys, in any order of threads") {
  const OnWarpgroups chips;
  in_every_order([&] {
    for (const int64_t head_dim : {64, 128, 256})
      for (const KvDType cache : {KvDType::kFp8E4m3, KvDType::kBFloat16, KvDType::kFloat16}) {
        if (cache == KvDType::kBFloat16 && head_dim == 256) continue;
        check_against_reference(chips, {.what = "order",
                                        .segments = prefill({330, 2, 129}),
                                        .heads = 4,
                                        .kv_heads = 1,
                                        .head_dim = head_dim,
                                        .kv_dtype = cache,
                                        .out_type = ComputeType::kBFloat16});
      }
  });
}

TEST_CASE("attention of warpgroups: history, windows, groups, caps and sinks") {
  const OnWarpgroups chips;
  for (const AttentionCase& c : test::history_cases())
    if (c.kv_dtype != KvDType::kFloat32) check_against_reference(chips, c);
}

TEST_CASE("attention of warpgroups: scores of tens, far above and below each other") {
  const OnWarpgroups chips;
  for (const KvDType cache : {KvDType::kBFloat16, KvDType::kFp8E4m3})
    check_against_reference(chips, test::tens_case(cache));
}

TEST_CASE("attention of warpgroups: a query's bytes do not depend on its neighbours") {
  const OnWarpgroups chips;
  for (const std::string& device : chips.devices()) {
    const auto backend = test::make_backend(device);
    for (const KvDType cache : {KvDType::kBFloat16, KvDType::kFp8E4m3})
      for (const int64_t window : {0, 50}) test::check_pieces(*backend, cache, window, 1.0f);
    CHECK(backend->kernels_used() == kUsed);
  }
}

#ifdef KVCAL_TEST_SIMULATED_GPU
TEST_CASE("attention of warpgroups: runs where it is asked for, on simulated chips") {
  gpu::simulator::set_vendor_matmul(true);  // whose absence is another warning
  const AttentionCase c{.what = "few",
                        .segments = prefill({5}),
                        .kv_dtype = KvDType::kFp8E4m3,
                        .out_type = ComputeType::kBFloat16,
                        .product_type = ComputeType::kBFloat16};
  {
    const OnWarpgroups chips;
    const test::ScopedVariable asked("KVCAL_GPU_ATTENTION", nullptr);
    for (const char* other : {"mma", ""}) {
      asked.set(other);
      const auto backend = test::make_backend("simulated");
      attend(*backend, c);
      CHECK(backend->kernels_used() == "attention on tensor cores");
    }
    asked.set("fast");
    CHECK(test::message_of([] { test::make_backend("simulated"); }) ==
          "KVCAL_GPU_ATTENTION is 'fast', expected mma or wgmma");
    asked.set("wgmma");
    CHECK(test::make_backend("simulated")->take_warnings().empty());
    gpu::simulator::set_chip({.architecture = "sm_89"});
    const auto older = test::make_backend("simulated");
    attend(*older, c);
    CHECK(older->kernels_used() == "attention on tensor cores");
    CHECK(
        older->take_warnings() ==
        std::vector<std::string>{"KVCAL_GPU_ATTENTION=wgmma has no effect: sm_89 is not sm_90, or "
                                 "this kvcal is not built for 90a"});
  }
  gpu::simulator::set_vendor_matmul(false);
}
#endif

TEST_CASE("attention of warpgroups: chips that have them, in programs that are built for them") {
  CHECK(gpu::has_warpgroup_matrix("sm_90", "80,90a-real"));
  CHECK(gpu::has_warpgroup_matrix("sm_90", "90a"));
  for (const char* compiled : {"80,90-real", "90", "80", "100a", ""})
    CHECK_FALSE(gpu::has_warpgroup_matrix("sm_90", compiled));
  for (const char* chip : {"sm_80", "sm_100", "sm_120", "gfx90a", "simulated", ""})
    CHECK_FALSE(gpu::has_warpgroup_matrix(chip, "80,90a-real"));
}

// PTX ISA, wgmma: "Matrix descriptor format", and the 128-byte swizzle of K-major and MN-major
// matrices, which exchanges 16-byte units by their address.
TEST_CASE("panels of shared memory: the descriptor has the manual's fields, rows its places") {
  constexpr uint32_t kAddress = 0x2a400;
  const uint64_t descriptor = gpu::panel_descriptor(kAddress);
  const auto field = [&](int first, int bits) {
    return descriptor >> first & ((uint64_t{1} << bits) - 1);
  };
  CHECK(field(0, 14) == kAddress / 16);
  CHECK(field(32, 14) == 8 * 128 / 16);  // from 8 rows of 128 bytes to the next
  CHECK(field(49, 3) == 0);              // panels begin where the pattern does
  CHECK(field(62, 2) == 1);              // 128 bytes
  for (const auto& [first, bits] : {std::pair{14, 2}, {30, 2}, {46, 3}, {52, 10}})
    CHECK(field(first, bits) == 0);
  for (int row = 0; row < 64; ++row)
    for (int chunk = 0; chunk < 8; ++chunk) {
      const int address = row * 128 + chunk * 16;
      CHECK(gpu::panel_at(row, chunk) * 2 == (address ^ (address >> 7 & 7) << 4));
    }
}

}  // namespace
}  // namespace kvcal
