// Attention of a decoding step, and steps that are recorded.
#include "kernels/attention_case.h"
#include "kernels/gpu/kv_number.h"

namespace kvcal {
namespace {

using test::attend;
using test::AttentionCase;

/// Sequences with one new token each, one behind the other in the cache.
std::vector<Segment> steps(const std::vector<int64_t>& lengths, int64_t queries = 1) {
  std::vector<Segment> segments;
  int64_t q_begin = 0, kv_begin = 0;
  for (const int64_t length : lengths) {
    segments.push_back({.q_begin = q_begin,
                        .q_count = std::min(queries, length),
                        .kv_begin = kv_begin,
                        .kv_count = length});
    q_begin += segments.back().q_count;
    kv_begin += length;
  }
  return segments;
}

void check_against_reference(const AttentionCase& c) {
  const auto expected = attend(*test::make_backend("reference"), c);
  test::for_each_backend([&](Backend& backend) {
    INFO(c.what << ": head_dim " << c.head_dim << ", " << name_of(c.kv_dtype) << " cache, window "
                << c.sliding_window);
    const auto actual = attend(backend, c);
    CHECK(test::agree_as_sums(actual, expected));
    CHECK(test::largest_error(actual, expected) < 3e-5);
  });
}

TEST_CASE("decoding attention: every backend agrees with the reference") {
  for (const KvDType cache : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                              KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
    for (const int64_t head_dim : {16, 80, 128, 256})
      check_against_reference({.what = "lengths",
                               .segments = steps({1, 127, 128, 129, 300}),
                               .heads = 8,
                               .kv_heads = 2,
                               .head_dim = head_dim,
                               .kv_dtype = cache,
                               .is_decoding = true});
  AttentionCase c{.what = "three queries, seven heads to one",
                  .segments = steps({2, 140, 260}, 3),
                  .heads = 7,
                  .kv_heads = 1,
                  .kv_dtype = KvDType::kFp8E4m3,
                  .extra_stride = 5,
                  .is_decoding = true};
  for (const int64_t window : {0, 1, 100, 200}) {
    c.sliding_window = window;
    check_against_reference(c);
    c.softcap = 1.5f;
    c.sinks = true;
    c.slopes = window == 100;
  }
  c.slopes = true;
  check_against_reference(c);
  c.heads = c.kv_heads = 4;
  check_against_reference(c);
  check_against_reference({.what = "latent",
                           .segments = steps({150}),
                           .heads = 16,
                           .kv_heads = 1,
                           .head_dim = 576,
                           .v_head_dim = 512,
                           .is_decoding = true});
}

TEST_CASE("decoding attention: a sequence's bytes do not depend on the others") {
  AttentionCase all{.what = "together",
                    .segments = steps({200, 40, 131}),
                    .heads = 4,
                    .kv_heads = 2,
                    .kv_dtype = KvDType::kFp8E4m3,
                    .is_decoding = true};
  const int64_t row = all.heads * all.head_dim;
  test::for_each_backend([&](Backend& backend) {
    test::AttentionInputs inputs(backend, all);
    const auto together = inputs.attend(all);
    for (const Segment& segment : all.segments) {
      AttentionCase alone = all;
      alone.segments = {segment};
      const auto actual = inputs.attend(alone);
      const int64_t begin = segment.q_begin * row;
      CHECK(test::same_bytes(
          std::vector<float>(actual.begin() + begin, actual.begin() + begin + row),
          std::vector<float>(together.begin() + begin, together.begin() + begin + row)));
    }
  });
}

TEST_CASE("decoding attention: what is recorded follows sequences that grow") {
  for (const bool is_decoding : {true, false})
    for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      AttentionCase most{.what = "recorded",
                         .segments = steps({300, 140}),
                         .heads = 4,
                         .kv_heads = 2,
                         .kv_dtype = KvDType::kFp8E4m3,
                         .sliding_window = 150,
                         .out_type = type,
                         .is_decoding = is_decoding};
      test::for_each_backend([&](Backend& backend) {
        if (!backend.can_record()) return;
        test::AttentionInputs inputs(backend, most);
        const test::OnBackend<Segment> current(backend, most.segments);
        const test::OnBackend<std::byte> out(backend, test::AttentionInputs::poison(most));
        inputs.attend(most, out.data(), current.data());
        const auto recording =
            backend.record([&] { inputs.attend(most, out.data(), current.data()); });
        for (const int64_t grown : {0, 1, 127, 128, 139}) {
          AttentionCase now = most;
          now.segments[0].kv_count = 161 + grown;
          now.segments[1].kv_count = 1 + grown;
          backend.copy_in(std::as_bytes(std::span(now.segments)),
                          reinterpret_cast<std::byte*>(current.data()));
          recording->play();
          INFO("grown by " << grown);
          CHECK(test::same_bytes(test::to_floats(out.values(), type), inputs.attend(now)));
        }
      });
    }
}

bool same_number(float a, float b) {
  return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b));
}

TEST_CASE("decoding attention: stored elements become the numbers they stand for") {
  bool same = true;
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    same &= same_number(gpu::number_of(fp8::E4m3Fn{code}), fp8::decode(fp8::E4m3Fn{code}));
    same &= same_number(gpu::number_of(fp8::E4m3Fnuz{code}), fp8::decode(fp8::E4m3Fnuz{code}));
    same &= same_number(gpu::number_of(fp8::E5m2{code}), fp8::decode(fp8::E5m2{code}));
  }
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    same &= same_number(gpu::number_of(F16{half}), to_float(F16{half}));
    same &= same_number(gpu::number_of(BF16{half}), to_float(BF16{half}));
  }
  CHECK(same);
}

}  // namespace
}  // namespace kvcal
