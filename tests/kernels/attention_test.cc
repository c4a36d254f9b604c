#include <cstring>
#include <map>

#include "kernels/attention_case.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

using test::attend;
using test::AttentionCase;
using test::prefill;

const std::vector<AttentionCase> kCases{
    {.what = "one token", .segments = prefill({1})},
    {.what = "packed", .segments = prefill({5, 1, 130, 33}), .heads = 6, .kv_heads = 2},
    {.what = "no sharing", .segments = prefill({71}), .heads = 2, .kv_heads = 2, .head_dim = 80},
    {.what = "odd width", .segments = prefill({67}), .heads = 3, .kv_heads = 1, .head_dim = 7},
    {.what = "narrow", .segments = prefill({40}), .heads = 8, .kv_heads = 4, .head_dim = 8},
    {.what = "wide", .segments = prefill({65}), .heads = 7, .kv_heads = 1, .head_dim = 256},
    {.what = "sixty heads on one",
     .segments = prefill({9}),
     .heads = 60,
     .kv_heads = 1,
     .head_dim = 16},
    {.what = "strided q",
     .segments = prefill({20, 30}),
     .heads = 4,
     .kv_heads = 2,
     .extra_stride = 96},
    {.what = "empty segment", .segments = prefill({3, 0, 4}), .heads = 2, .kv_heads = 1},
    {.what = "decode",
     .segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = 200},
                  {.q_begin = 1, .q_count = 1, .kv_begin = 200, .kv_count = 1},
                  {.q_begin = 2, .q_count = 3, .kv_begin = 201, .kv_count = 66}},
     .heads = 9,
     .kv_heads = 3},
    {.what = "window",
     .segments = prefill({150, 20}),
     .heads = 4,
     .kv_heads = 2,
     .sliding_window = 17},
    {.what = "window of one", .segments = prefill({70}), .sliding_window = 1},
    {.what = "window and history",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 0, .kv_count = 300}},
     .heads = 2,
     .kv_heads = 1,
     .sliding_window = 130},
    {.what = "large scores",
     .segments = prefill({90}),
     .heads = 2,
     .kv_heads = 1,
     .deviation = 6.0f},
    {.what = "narrower values",
     .segments = prefill({70, 9}),
     .heads = 4,
     .kv_heads = 4,
     .head_dim = 192,
     .v_head_dim = 128},
    {.what = "much wider values",
     .segments = prefill({50}),
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 4,
     .v_head_dim = 77},
    {.what = "latent",
     .segments = {{.q_begin = 0, .q_count = 5, .kv_begin = 0, .kv_count = 130}},
     .heads = 16,
     .kv_heads = 1,
     .head_dim = 576,
     .v_head_dim = 512},
    {.what = "softcap", .segments = prefill({90, 5}), .heads = 4, .kv_heads = 2, .softcap = 0.8f},
    {.what = "softcap far above the scores",
     .segments = prefill({90}),
     .heads = 2,
     .kv_heads = 1,
     .softcap = 50.0f},
    {.what = "softcap and window, scores far beyond",
     .segments = prefill({150}),
     .heads = 2,
     .kv_heads = 1,
     .sliding_window = 17,
     .deviation = 6.0f,
     .softcap = 5.0f},
    {.what = "sinks", .segments = prefill({90, 1, 5}), .heads = 6, .kv_heads = 2, .sinks = true},
    {.what = "sinks below large scores",
     .segments = prefill({90}),
     .heads = 2,
     .kv_heads = 1,
     .deviation = 6.0f,
     .sinks = true},
    {.what = "slopes", .segments = prefill({90, 1, 5, 200}), .heads = 6, .slopes = true},
    {.what = "slopes, products in 16 bits",
     .segments = prefill({90, 33}),
     .heads = 6,
     .kv_heads = 2,
     .kv_dtype = KvDType::kFp8E4m3,
     .slopes = true,
     .product_type = ComputeType::kBFloat16},
    {.what = "slopes behind a cap, in a window, with sinks",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 3, .kv_count = 200}},
     .heads = 4,
     .kv_heads = 2,
     .sliding_window = 70,
     .softcap = 1.5f,
     .sinks = true,
     .slopes = true},
    {.what = "slopes of selected keys",
     .segments = prefill({150}),
     .heads = 4,
     .kv_heads = 2,
     .slopes = true,
     .selected = 30},
    {.what = "selected keys",
     .segments = prefill({90, 1, 5, 200}),
     .heads = 6,
     .kv_heads = 2,
     .selected = 10},
    {.what = "selected keys, narrower values",
     .segments = prefill({70, 150}),
     .heads = 4,
     .kv_heads = 4,
     .head_dim = 192,
     .v_head_dim = 128,
     .selected = 40},
    {.what = "selected keys of a decoding step",
     .segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = 200},
                  {.q_begin = 1, .q_count = 1, .kv_begin = 200, .kv_count = 1},
                  {.q_begin = 2, .q_count = 3, .kv_begin = 201, .kv_count = 66}},
     .heads = 9,
     .kv_heads = 3,
     .is_decoding = true,
     .selected = 20},
    {.what = "selected keys in a window",
     .segments = prefill({150, 20}),
     .heads = 4,
     .kv_heads = 2,
     .sliding_window = 70,
     .softcap = 1.5f,
     .sinks = true,
     .selected = 50},
    {.what = "relative logits",
     .segments = prefill({90, 1, 5, 200}),
     .heads = 6,
     .kv_heads = 2,
     .relative_rank = 3,
     .relative_extent = 40},
    {.what = "relative logits further than any key",
     .segments = prefill({150}),
     .heads = 2,
     .kv_heads = 2,
     .relative_rank = 16,
     .relative_extent = 1000},
    {.what = "relative logits of a decoding step",
     .segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = 200},
                  {.q_begin = 1, .q_count = 1, .kv_begin = 200, .kv_count = 1},
                  {.q_begin = 2, .q_count = 3, .kv_begin = 201, .kv_count = 66}},
     .heads = 9,
     .kv_heads = 3,
     .is_decoding = true,
     .relative_rank = 5,
     .relative_extent = 130},
    {.what = "relative logits, window, sinks and history",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 0, .kv_count = 300}},
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .sliding_window = 130,
     .v_head_dim = 40,
     .sinks = true,
     .relative_rank = 2,
     .relative_extent = 64},
    {.what = "relative logits of selected keys",
     .segments = prefill({90, 33}),
     .heads = 4,
     .kv_heads = 2,
     .relative_rank = 4,
     .relative_extent = 50,
     .selected = 30},
    {.what = "all of it",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 0, .kv_count = 300}},
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .sliding_window = 130,
     .v_head_dim = 40,
     .softcap = 1.5f,
     .sinks = true},
};

TEST_CASE("attention: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const AttentionCase& c : kCases) {
    const auto expected = attend(*reference, c);
    test::for_each_backend([&](Backend& backend) {
      INFO(c.what);
      const auto actual = attend(backend, c);
      CHECK(test::agree_as_sums(actual, expected));
      CHECK(test::largest_error(actual, expected) < 3e-5 * c.deviation);
    });
  }
}

TEST_CASE("attention: a selection of all keys changes no byte of float32") {
  AttentionCase c{.what = "all keys", .segments = prefill({90, 33}), .heads = 4, .kv_heads = 2};
  test::for_each_backend([&](Backend& backend) {
    c.selected = 0;
    const auto expected = attend(backend, c);
    c.selected = 100;
    CHECK(test::same_bytes(attend(backend, c), expected));
  });
}

TEST_CASE("attention: reads every kind of cache and writes every type") {
  const auto reference = test::make_backend("reference");
  for (const int64_t head_dim : {64, 21})
    for (const KvDType dtype : {KvDType::kFloat16, KvDType::kBFloat16, KvDType::kFp8E4m3,
                                KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
      for (const ComputeType type :
           {ComputeType::kFloat32, ComputeType::kBFloat16, ComputeType::kFloat16}) {
        const AttentionCase c{.what = std::string(name_of(dtype)),
                              .segments = prefill({37, 70}),
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = head_dim,
                              .kv_dtype = dtype,
                              .out_type = type};
        const auto expected = attend(*reference, c);
        test::for_each_backend([&](Backend& backend) {
          INFO(c.what << " cache, " << name_of(type) << " out");
          CHECK(test::agree_as_sums(attend(backend, c), expected));
        });
      }
}

TEST_CASE("attention: a query's bytes depend neither on its neighbours nor on the threads") {
  AttentionCase c{.what = "split",
                  .segments = prefill({200}),
                  .heads = 6,
                  .kv_heads = 2,
                  .kv_dtype = KvDType::kFp8E4m3};
  for (const int64_t window : {0, 50, 51}) {
    c.sliding_window = window;
    if (window == 51) {
      c.v_head_dim = 40;
      c.softcap = 1.5f;
      c.sinks = true;
    }
    const int64_t row = c.heads * c.value_dim();
    std::map<std::string, std::vector<float>> of_device;
    test::for_each_backend([&](Backend& backend) {
      const auto expected = attend(backend, c);
      // CPUs differ in their vector instructions, so only the number of threads is compared.
      if (backend.name() != "cpu") of_device.try_emplace(std::string(backend.name()), expected);
      if (const auto first = of_device.find(std::string(backend.name())); first != of_device.end())
        CHECK(test::same_bytes(expected, first->second));
      // The same queries, in pieces: q rows [begin, end) with all keys up to theirs.
      AttentionCase piece = c;
      for (const auto& [begin, end] :
           {std::pair<int64_t, int64_t>{0, 1}, {63, 64}, {64, 65}, {90, 107}, {199, 200}}) {
        piece.segments = {
            {.q_begin = begin, .q_count = end - begin, .kv_begin = 0, .kv_count = end}};
        const auto actual = attend(backend, piece);
        INFO("queries " << begin << " to " << end << ", window " << window);
        CHECK(test::same_bytes(
            std::vector<float>(actual.begin() + begin * row, actual.begin() + end * row),
            std::vector<float>(expected.begin() + begin * row, expected.begin() + end * row)));
      }
    });
    const auto alone = attend(*test::make_backend("cpu", 1), c);
    for (const int threads : {2, 3})
      CHECK(test::same_bytes(attend(*test::make_backend("cpu", threads), c), alone));
  }
}

/// One head, given outright; its cache is float32 or bfloat16.
struct OneHead {
  std::vector<float> q, k, v;
  int64_t dim = 16;
  KvDType kv_dtype = KvDType::kFloat32;
  float softcap = 0.0f;
  std::vector<float> sinks = {};  ///< none or one
  int64_t sliding_window = 0;
  ComputeType out_type = ComputeType::kFloat32, product_type = ComputeType::kFloat32;

  std::vector<float> run(Backend& backend) const {
    const int64_t tokens = static_cast<int64_t>(q.size()) / dim;
    const auto segments = prefill({tokens});
    const test::OnBackend<float> on_q(backend, q);
    const test::OnBackend<std::byte> on_k(backend, cached(k)), on_v(backend, cached(v));
    const test::OnBackend<float> on_sinks(backend, sinks);
    const test::OnBackend<std::byte> out(
        backend, std::vector<std::byte>(q.size() * bytes_of(out_type), std::byte{0xff}));
    backend.attention({.q = on_q.data(),
                       .q_row_stride = dim,
                       .k = on_k.data(),
                       .v = on_v.data(),
                       .kv_dtype = kv_dtype,
                       .segments = segments,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_dim = dim,
                       .softcap = softcap,
                       .sinks = sinks.empty() ? nullptr : on_sinks.data(),
                       .sliding_window = sliding_window,
                       .product_type = product_type,
                       .out_type = out_type,
                       .out = out.data()});
    return test::to_floats(out.values(), out_type);
  }

 private:
  std::vector<std::byte> cached(const std::vector<float>& values) const {
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(bytes_per_element(kv_dtype)));
    for (size_t i = 0; i < values.size(); ++i)
      if (const BF16 half = to_bf16(values[i]); kv_dtype == KvDType::kBFloat16)
        std::memcpy(&bytes[2 * i], &half, 2);
      else
        std::memcpy(&bytes[4 * i], &values[i], 4);
    return bytes;
  }
};

OneHead random_head(int64_t tokens, int64_t dim, ComputeType out_type) {
  const int64_t count = tokens * dim;
  return {.q = test::normal(count, 1),
          .k = test::normal(count, 2),
          .v = test::normal(count, 3),
          .dim = dim,
          .out_type = out_type};
}

TEST_CASE("attention: a sink far above all scores leaves nothing, far below it changes nothing") {
  test::for_each_backend([](Backend& backend) {
    for (const ComputeType type : test::kComputeTypes) {
      OneHead head = random_head(100, 16, type);
      head.product_type = type;
      head.sliding_window = 70;
      const auto without = head.run(backend);
      head.sinks = {1e4f};
      CHECK(head.run(backend) == std::vector<float>(head.q.size()));
      head.sinks = {-1e4f};
      CHECK(test::same_bytes(head.run(backend), without));
      head.sinks = {-std::numeric_limits<float>::infinity()};
      CHECK(test::same_bytes(head.run(backend), without));
    }
  });
}

void check_nan(Backend& backend, ComputeType type, KvDType cache, bool in_value, int64_t window) {
  constexpr int64_t kTokens = 100, kDim = 16, kBad = 70;
  OneHead head = random_head(kTokens, kDim, type);
  (in_value ? head.v : head.k)[kBad * kDim + 3] = std::numeric_limits<float>::quiet_NaN();
  head.kv_dtype = cache;
  head.product_type = type;
  head.sliding_window = window;
  if (window > 0) {
    head.softcap = 2.0f;
    head.sinks = {1.0f};
  }
  // The CPU multiplies values that are hidden by the weight 0.
  if (in_value && backend.name() == "cpu") return;
  const auto out = head.run(backend);
  INFO(name_of(type) << ", " << name_of(cache) << " cache" << (in_value ? ", value" : ", key")
                     << ", window " << window);
  std::vector<bool> bad, expected;
  for (int64_t t = 0; t < kTokens; ++t) {
    bad.push_back(std::isnan(out[static_cast<size_t>(t * kDim + 3)]));
    expected.push_back(t >= kBad && (window == 0 || t < kBad + window));
    // Another dimension: a value's NaN stays in its own.
    CHECK(std::isnan(out[static_cast<size_t>(t * kDim)]) == (!in_value && expected.back()));
  }
  CHECK(bad == expected);
}

TEST_CASE("attention: NaN in a key or a value reaches every query that sees it, and no other") {
  const auto check = [](Backend& backend) {
    for (const ComputeType type : test::kComputeTypes)
      for (const KvDType cache : {KvDType::kFloat32, KvDType::kBFloat16})
        for (const bool in_value : {false, true})
          for (const int64_t window : {0, 20}) check_nan(backend, type, cache, in_value, window);
  };
  test::for_each_backend(check);
#ifdef KVCAL_TEST_SIMULATED_GPU
  {
    const test::OnWavefronts chip;
    check(*test::make_backend("simulated"));
  }
#endif
  const test::OnWarpgroups chips;
  for (const std::string& device : chips.devices()) {
    const auto backend = test::make_backend(device);
    check(*backend);
    CHECK(test::contains(backend->kernels_used(), "by wgmma"));
  }
}

TEST_CASE("attention: notes the largest magnitude of what it writes") {
  for (const ComputeType type : test::kComputeTypes) {
    const AttentionCase c{.what = "amax",
                          .segments = {{.q_begin = 3, .q_count = 5, .kv_begin = 1, .kv_count = 40}},
                          .heads = 4,
                          .kv_heads = 2,
                          .out_type = type};
    test::for_each_backend([&](Backend& backend) {
      test::AttentionInputs inputs(backend, c);
      const auto out = inputs.attend(c);
      float amax = 0.0f;
      for (size_t i = static_cast<size_t>(3 * c.heads * c.head_dim); i < out.size(); ++i)
        amax = std::max(amax, std::fabs(out[i]));
      CHECK(inputs.amax() == amax);
      CHECK(inputs.nonfinite() == 0);
    });
  }
}

}  // namespace
}  // namespace kvcal
