#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "support/backends.h"
#include "support/near.h"
#include "support/scoped_variable.h"

namespace kvcal::test {

/// One call of attention, with random queries, keys and values.
struct AttentionCase {
  std::string what;
  std::vector<Segment> segments;
  int64_t heads = 1, kv_heads = 1, head_dim = 64;
  KvDType kv_dtype = KvDType::kFloat32;
  int64_t sliding_window = 0;
  ComputeType out_type = ComputeType::kFloat32;
  int64_t extra_stride = 0;
  float deviation = 1.0f;
  int64_t v_head_dim = 0;
  float softcap = 0.0f;
  bool sinks = false;
  bool slopes = false;  ///< of ALiBi
  ComputeType product_type = ComputeType::kFloat32;
  bool is_decoding = false;
  float weight_scale = 0.0f;
  /// Added to the first two channels of each head of Q and of K, as biases of Qwen2 are: scores are
  /// far from zero.
  float q_offset = 0.0f, k_offset = 0.0f;
  /// Of RelativeLogits; a rank of 0: none.
  int64_t relative_rank = 0, relative_extent = 0;
  unsigned selected = 0;  ///< of 100 keys, beside a query's own; 0: there is no selection

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t q_rows() const {
    int64_t rows = 0;
    for (const Segment& s : segments) rows = std::max(rows, s.q_begin + s.q_count);
    return rows;
  }
  int64_t kv_rows() const {
    int64_t rows = 0;
    for (const Segment& s : segments) rows = std::max(rows, s.kv_begin + s.kv_count);
    return rows;
  }
};

inline std::vector<float> head_scales(int64_t heads, float first) {
  std::vector<float> scales;
  for (int64_t h = 0; h < heads; ++h)
    scales.push_back(first * (1.0f + 0.37f * static_cast<float>(h)));
  return scales;
}

/// Adds offset to the first two channels of each head.
inline std::vector<float> with_offset(std::vector<float> values, int64_t head_dim, float offset) {
  for (size_t i = 0; offset != 0.0f && i < values.size(); ++i)
    if (static_cast<int64_t>(i) % head_dim < 2) values[i] += offset;
  return values;
}

inline constexpr uint64_t kKeySeed = 2;
/// Random K or V as elements of the cache, written by the reference.
inline std::vector<std::byte> random_cache(const AttentionCase& c, int64_t dim, uint64_t seed,
                                           const std::vector<float>& scales) {
  std::vector<float> x = with_offset(normal(c.kv_rows() * c.kv_heads * dim, seed, c.deviation), dim,
                                     seed == kKeySeed ? c.k_offset : 0.0f);
  std::vector<std::byte> out(x.size() * static_cast<size_t>(bytes_per_element(c.kv_dtype)));
  make_backend("reference")
      ->store_kv({.x = {.data = x.data(),
                        .tokens = c.kv_rows(),
                        .heads = c.kv_heads,
                        .head_dim = dim,
                        .row_stride = c.kv_heads * dim},
                  .dtype = c.kv_dtype,
                  .scales = scales.data(),
                  .out = out.data()});
  return out;
}

/// Slopes of ALiBi for so many heads, from large to small.
inline std::vector<float> slopes_of(int64_t heads) {
  std::vector<float> slopes;
  for (int64_t h = 1; h <= heads; ++h)
    slopes.push_back(std::exp2(-8.0f * static_cast<float>(h) / static_cast<float>(heads)));
  return slopes;
}

/// Words of a row of the case's selection; 0: there is none.
inline int64_t selection_words(const AttentionCase& c) {
  return c.selected == 0 ? 0 : KeySelection::words_of(c.kv_rows()) + 1;
}
/// A selection of so many of 100 keys, and of each query's own.
inline std::vector<uint32_t> random_selection(const AttentionCase& c) {
  const int64_t words = selection_words(c);
  std::vector<uint32_t> rows(static_cast<size_t>(c.q_rows() * words));
  uint32_t state = 12345;
  for (const Segment& segment : c.segments)
    for (int64_t i = 0; i < segment.q_count && words > 0; ++i)
      for (int64_t key = 0; key < segment.kv_count; ++key) {
        state = state * 1664525 + 1013904223;
        const bool is_own = key == segment.kv_count - segment.q_count + i;
        if (is_own || (state >> 8) % 100 < c.selected)
          rows[static_cast<size_t>((segment.q_begin + i) * words + key / 32)] |= 1u << (key % 32);
      }
  return rows;
}

/// The inputs of a case in a backend's memory.
class AttentionInputs {
 public:
  AttentionInputs(Backend& backend, const AttentionCase& c)
      : backend_(backend),
        q_(backend,
           with_offset(normal(c.q_rows() * q_stride(c), 1, c.deviation), c.head_dim, c.q_offset)),
        k_(backend, random_cache(c, c.head_dim, kKeySeed, head_scales(c.kv_heads, kKScale))),
        v_(backend, random_cache(c, c.value_dim(), 3, head_scales(c.kv_heads, kVScale))),
        k_scale_(backend, head_scales(c.kv_heads, kKScale)),
        v_scale_(backend, head_scales(c.kv_heads, kVScale)),
        sinks_(backend, normal(c.heads, 4, 2.0f)),
        slopes_(backend, slopes_of(c.heads)),
        relative_states_(backend, normal(c.q_rows() * c.heads * c.relative_rank, 5)),
        relative_table_(backend, normal(c.relative_extent * c.relative_rank, 6)),
        selection_(backend, random_selection(c)),
        amax_(backend, std::vector<float>{0.0f}),
        nonfinite_(backend, std::vector<uint64_t>{0}) {}

  HeadsView queries(const AttentionCase& c) {
    return {.data = q_.data(),
            .tokens = c.q_rows(),
            .heads = c.heads,
            .head_dim = c.head_dim,
            .row_stride = q_stride(c)};
  }
  /// out: [q rows, heads, value_dim]; current: segments in backend memory, or null; rope: of
  /// queries.
  void attend(const AttentionCase& c, std::byte* out, const Segment* current = nullptr,
              const RopeArgs& rope = {}) {
    backend_.attention(
        {.q = q_.data(),
         .q_row_stride = q_stride(c),
         .rope = rope,
         .k = k_.data(),
         .v = v_.data(),
         .kv_dtype = c.kv_dtype,
         .k_scales = k_scale_.data(),
         .v_scales = v_scale_.data(),
         .segments = c.segments,
         .current_segments = current,
         .heads = c.heads,
         .kv_heads = c.kv_heads,
         .head_dim = c.head_dim,
         .v_head_dim = c.v_head_dim,
         .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
         .softcap = c.softcap,
         .sinks = c.sinks ? sinks_.data() : nullptr,
         .slopes = c.slopes ? slopes_.data() : nullptr,
         .sliding_window = c.sliding_window,
         .selection = {c.selected > 0 ? selection_.data() : nullptr, selection_words(c)},
         .relative = relative(c),
         .product_type = c.product_type,
         .out_type = c.out_type,
         .out = out,
         .seen = {amax_.data(), nonfinite_.data()},
         .weight_scale = c.weight_scale,
         .is_decoding = c.is_decoding});
  }
  /// The same, poisoned first, as numbers.
  std::vector<float> attend(const AttentionCase& c) {
    const OnBackend<std::byte> out(backend_, poison(c));
    attend(c, out.data());
    return to_floats(out.values(), c.out_type);
  }
  static std::vector<std::byte> poison(const AttentionCase& c) {
    const auto count = static_cast<size_t>(c.q_rows() * c.heads * c.value_dim());
    return std::vector<std::byte>(count * bytes_of(c.out_type), std::byte{0xff});
  }
  float amax() const { return amax_.values()[0]; }
  uint64_t nonfinite() const { return nonfinite_.values()[0]; }

 private:
  static constexpr float kKScale = 0.011f, kVScale = 0.02f;
  static int64_t q_stride(const AttentionCase& c) { return c.heads * c.head_dim + c.extra_stride; }

  RelativeLogits relative(const AttentionCase& c) const {
    if (c.relative_rank == 0) return {};
    return {.states = relative_states_.data(),
            .table = relative_table_.data(),
            .rank = c.relative_rank,
            .extent = c.relative_extent};
  }

  Backend& backend_;
  OnBackend<float> q_;
  OnBackend<std::byte> k_, v_;
  OnBackend<float> k_scale_, v_scale_, sinks_, slopes_;
  OnBackend<float> relative_states_, relative_table_;
  OnBackend<uint32_t> selection_;
  OnBackend<float> amax_;
  OnBackend<uint64_t> nonfinite_;
};

inline std::vector<float> attend(Backend& backend, const AttentionCase& c) {
  return AttentionInputs(backend, c).attend(c);
}

#ifdef KVCAL_TEST_SIMULATED_GPU
/// Makes simulated GPUs chips with matrix instructions of wavefronts. A compute unit of CDNA has 64
/// KiB of shared memory.
struct OnWavefronts {
  OnWavefronts() { gpu::simulator::set_chip({"gfx90a", size_t{64} << 10}); }
  ~OnWavefronts() { gpu::simulator::set_chip({}); }
  OnWavefronts(const OnWavefronts&) = delete;
  OnWavefronts& operator=(const OnWavefronts&) = delete;
};
#endif

/// Asks for the matrix instructions of warpgroups, and makes simulated GPUs chips that have them.
class OnWarpgroups {
 public:
#ifdef KVCAL_TEST_SIMULATED_GPU
  OnWarpgroups() {
    gpu::simulator::set_chip({.architecture = "sm_90", .decodes_fp8 = true});
  }
  ~OnWarpgroups() {
    gpu::simulator::set_chip({});
  }
#else
  OnWarpgroups() = default;
#endif
  OnWarpgroups(const OnWarpgroups&) = delete;
  OnWarpgroups& operator=(const OnWarpgroups&) = delete;

  /// The devices that have them. A chip without says so.
  std::vector<std::string> devices() const {
    std::vector<std::string> names;
    for (const std::string& name : device_names()) {
      const auto backend = make_backend(name);
      const bool lacks = std::ranges::any_of(backend->take_warnings(), [](const auto& warning) {
        return warning.starts_with("KVCAL_GPU_ATTENTION=wgmma has no effect");
      });
      INFO(backend->description());
      CHECK(lacks == (backend->description().find("sm_90") == std::string::npos));
      if (!lacks) names.push_back(name);
    }
    return names;
  }

 private:
  ScopedVariable asked_{"KVCAL_GPU_ATTENTION", "wgmma"};
};

inline std::vector<Segment> prefill(std::vector<int64_t> lengths) {
  std::vector<Segment> segments;
  int64_t begin = 0;
  for (const int64_t n : lengths) {
    segments.push_back({.q_begin = begin, .q_count = n, .kv_begin = begin, .kv_count = n});
    begin += n;
  }
  return segments;
}

/// What attention in 16 bits is tried with: every width and cache.
inline std::vector<AttentionCase> width_cases() {
  std::vector<AttentionCase> cases;
  for (const int64_t head_dim : {64, 80, 96, 128, 192, 256})
    for (const KvDType cache : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kBFloat16,
                                KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
      cases.push_back(
          {.what = "width",
           .segments = {{.q_begin = 0, .q_count = 20, .kv_begin = 3, .kv_count = 70}},
           .heads = 2,
           .kv_heads = 1,
           .head_dim = head_dim,
           .kv_dtype = cache,
           .out_type = head_dim % 128 == 0 ? ComputeType::kFloat16 : ComputeType::kBFloat16});
  return cases;
}

/// The same: history, windows, groups, caps and sinks.
inline std::vector<AttentionCase> history_cases() {
  std::vector<AttentionCase> cases;
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
    for (const int64_t window : {0, 1, 17, 64, 65}) {
      c.sliding_window = window;
      cases.push_back(c);
    }
    c.what = "group of eight, cap and sinks";
    c.kv_heads = 1;
    c.softcap = 3.0f;
    c.sinks = true;
    cases.push_back(c);
    c.what = "group of seven, narrower values";
    c.heads = 7;
    c.head_dim = 96;
    c.v_head_dim = 48;
    cases.push_back(c);
  }
  return cases;
}

/// The same: scores of tens, far above and below each other.
inline AttentionCase tens_case(KvDType cache) {
  return {.what = "tens",
          .segments = prefill({300}),
          .heads = 3,
          .kv_dtype = cache,
          .sliding_window = 40,
          .out_type = ComputeType::kBFloat16,
          .deviation = 4.0f,
          .sinks = true};
}

/// Weights cut to bfloat16 are off by up to 2^-8; about 5e-7 with many keys, more with few.
inline constexpr double kCutWeights = 4e-6;

/// A device agrees with the reference where products may be in bfloat16; used: what it says of its
/// kernels.
inline void check_device(const std::string& device, AttentionCase c, const std::string& used) {
  INFO(c.what << ": head_dim " << c.head_dim << ", " << name_of(c.kv_dtype) << " cache, window "
              << c.sliding_window);
  c.product_type = ComputeType::kBFloat16;
  const auto expected = attend(*make_backend("reference"), c);
  const auto backend = make_backend(device);
  CHECK(agree_as_sums(attend(*backend, c), expected, kCutWeights));
  CHECK(backend->kernels_used() == used);
}

/// Queries that are asked for in pieces get the bytes that they get among all of a prefill of 150.
inline void check_pieces(Backend& backend, KvDType cache, int64_t window, float deviation) {
  AttentionCase c{.what = "split",
                  .segments = prefill({150}),
                  .heads = 6,
                  .kv_heads = 2,
                  .kv_dtype = cache,
                  .sliding_window = window,
                  .out_type = ComputeType::kBFloat16,
                  .deviation = deviation,
                  .product_type = ComputeType::kBFloat16};
  const int64_t row = c.heads * c.head_dim;
  const auto expected = attend(backend, c);
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, 1}, {63, 65}, {90, 107}, {149, 150}}) {
    c.segments = {{.q_begin = begin, .q_count = end - begin, .kv_begin = 0, .kv_count = end}};
    const auto actual = attend(backend, c);
    INFO("queries " << begin << " to " << end << ", window " << window);
    CHECK(same_bytes(
        std::vector<float>(actual.begin() + begin * row, actual.begin() + end * row),
        std::vector<float>(expected.begin() + begin * row, expected.begin() + end * row)));
  }
}

}  // namespace kvcal::test
