// Attention that rotates its queries as it reads them: rope before it is the judge.
#include "kernels/attention_case.h"

namespace kvcal {
namespace {

using test::AttentionCase;
using test::AttentionInputs;
using test::OnBackend;

struct Turn {
  int64_t rotary_dim = 64;
  bool interleaved = false;
};

/// Bytes of attention of queries that rope has rotated, or that attention rotates.
std::vector<std::byte> attended(Backend& backend, const AttentionCase& c, const Turn& turn,
                                bool in_attention) {
  AttentionInputs inputs(backend, c);
  const int64_t half = turn.rotary_dim / 2, positions = 9;
  std::vector<int32_t> rows;
  for (int64_t row = 0; row < c.q_rows(); ++row)
    rows.push_back(static_cast<int32_t>(row * 5 % positions));
  const OnBackend<int32_t> of_rows(backend, rows);
  const OnBackend<float> cos(backend, test::normal(positions * half, 11));
  const OnBackend<float> sin(backend, test::normal(positions * half, 12));
  const RopeArgs rope{.x = inputs.queries(c),
                      .positions = of_rows.data(),
                      .cos = cos.data(),
                      .sin = sin.data(),
                      .rotary_dim = turn.rotary_dim,
                      .interleaved = turn.interleaved};
  const OnBackend<std::byte> out(backend, AttentionInputs::poison(c));
  if (!in_attention) backend.rope(rope);
  inputs.attend(c, out.data(), nullptr, in_attention ? rope : RopeArgs{});
  return out.values();
}

/// saved: launches that are spared, which the simulated device counts.
void check_same_bytes(const std::string& device, const AttentionCase& c, const Turn& turn,
                      [[maybe_unused]] int64_t saved) {
  INFO(c.what << ": head_dim " << c.head_dim << ", rotary_dim " << turn.rotary_dim
              << ", interleaved " << turn.interleaved << ", " << name_of(c.kv_dtype) << " cache");
  const auto backend = test::make_backend(device);
#ifdef KVCAL_TEST_SIMULATED_GPU
  const auto launches = [&](bool in_attention) {
    gpu::simulator::count_anew();
    attended(*backend, c, turn, in_attention);
    return gpu::simulator::counts().launches;
  };
  if (device == "simulated") {
    const int64_t before = launches(false);
    CHECK(before - launches(true) == saved);
  }
#endif
  CHECK(attended(*backend, c, turn, true) == attended(*backend, c, turn, false));
}

void check_every_device(const AttentionCase& c, const Turn& turn, int64_t saved) {
  for (const std::string& device : test::device_names()) check_same_bytes(device, c, turn, saved);
}

const std::vector<Turn> kTurns{{64, false}, {48, false}, {64, true}, {20, true}};

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> cases;
  for (const KvDType cache : {KvDType::kFp8E4m3, KvDType::kBFloat16})
    for (const int64_t head_dim : {64, 128})
      cases.push_back({.what = "prefill",
                       .segments = test::prefill({70, 5}),
                       .heads = 6,
                       .kv_heads = 2,
                       .head_dim = head_dim,
                       .kv_dtype = cache,
                       .out_type = ComputeType::kBFloat16,
                       .extra_stride = 2,
                       .product_type = ComputeType::kBFloat16});
  return cases;
}

}  // namespace

TEST_CASE("attention on tensor cores rotates queries as rope does") {
  for (const AttentionCase& c : cases())
    for (const Turn& turn : kTurns) check_every_device(c, turn, 1);
}

#ifdef KVCAL_TEST_SIMULATED_GPU
TEST_CASE("attention on matrix cores rotates queries as rope does") {
  const test::OnWavefronts chip;
  for (const AttentionCase& c : cases())
    for (const Turn& turn : kTurns) check_same_bytes("simulated", c, turn, 1);
}
#endif

TEST_CASE("attention of warpgroups rotates queries as rope does") {
  const test::OnWarpgroups chips;
  for (const std::string& device : chips.devices())
    for (const AttentionCase& c : cases())
      for (const Turn& turn : kTurns) check_same_bytes(device, c, turn, 1);
}

TEST_CASE("attention in decoding rotates queries as rope does") {
  for (AttentionCase c : cases()) {
    c.what = "decoding";
    c.segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = 300},
                  {.q_begin = 1, .q_count = 2, .kv_begin = 300, .kv_count = 40}};
    c.is_decoding = true;
    for (const Turn& turn : kTurns) check_every_device(c, turn, 1);
  }
}

TEST_CASE("attention runs rope first where it cannot rotate queries itself") {
  AttentionCase c = cases()[0];
  c.what = "queries that do not lie in pairs";
  c.extra_stride = 1;
  check_every_device(c, {64, false}, 0);
  c = cases()[0];
  c.what = "pairs of dimensions that cross the half";
  check_every_device(c, {18, false}, 0);
  c.what = "float32";
  c.out_type = c.product_type = ComputeType::kFloat32;
  check_every_device(c, {64, false}, 0);
  c.what = "selected keys";
  c.selected = 40;
  check_every_device(c, {64, false}, 0);
}

}  // namespace kvcal
