// Every kernel of a device against its floor: bytes against a copy of the device's own memory, and
// operations against a large matrix product, all in one run, by the device's clock.
//   device_kernels [--device cuda[:N]] [--small] [--only
//   norms|elementwise|cache|attention|products]
// --small shrinks the shapes so that a run is quick and proves nothing about speed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/bench_device.h"
#include "bench/program.h"
#include "quant/observations.h"

namespace kvcal::bench {
namespace {

/// Llama-3-8B's.
struct Shapes {
  int64_t tokens = 16384, sequence = 2048, hidden = 4096, heads = 32, kv_heads = 8, head_dim = 128,
          inner = 14336, square = 8192, decode_tokens = 16384;
  bool is_small = false;
  std::string only = {};  ///< a part of the kernels; empty: all
};

class Kernels {
 public:
  Kernels(Device& device, const Shapes& shapes)
      : device_(device), b_(device.backend()), s_(shapes) {
    for (int64_t begin = 0; begin < s_.tokens; begin += s_.sequence)
      segments_.push_back(
          {.q_begin = begin, .q_count = s_.sequence, .kv_begin = begin, .kv_count = s_.sequence});
  }

  void run() {
    std::printf("%s\n", b_.description().c_str());
    limits();
    std::printf("%-44s %10s %10s %8s\n", "kernel", "ms", "rate", "of limit");
    for (const auto& [name, part] : {std::pair{"norms", &Kernels::norms},
                                     {"elementwise", &Kernels::elementwise},
                                     {"cache", &Kernels::cache},
                                     {"attention", &Kernels::attention},
                                     {"products", &Kernels::products}})
      if (s_.only.empty() || s_.only == name) (this->*part)();
  }

 private:
  Buffer floats(int64_t count) { return device_.random_floats(count); }
  Buffer bytes(int64_t count) {
    Buffer buffer = b_.allocate(static_cast<size_t>(count));
    b_.fill_zero(buffer.data(), buffer.size());
    return buffer;
  }
  std::unique_ptr<PackedMatrix> weight(int64_t out, int64_t in) {
    return device_.random_weight(out, in, ComputeType::kBFloat16);
  }

  void limits() {
    const int64_t count = s_.tokens * s_.inner;
    const Buffer from = floats(count), to = bytes(count * 4);
    copy_rate_ = 8.0 * static_cast<double>(count) /
                 device_.milliseconds([&] { device_.copy(from, to); }) / 1e6;
    const auto square = weight(s_.square, s_.square);
    const Buffer x = device_.random_bf16(s_.square * s_.square),
                 out = bytes(s_.square * s_.square * 4);
    const double flop = 2.0 * static_cast<double>(s_.square) * static_cast<double>(s_.square) *
                        static_cast<double>(s_.square);
    matmul_rate_ = flop / device_.milliseconds([&] {
      b_.matmul({.x = x.data(), .weight = *square, .rows = s_.square, .out = out.as<float>()});
    }) / 1e9;
    std::printf("copy: %.0f GB/s (read and written); bf16 product of %lld: %.1f TFLOP/s\n",
                copy_rate_, static_cast<long long>(s_.square), matmul_rate_);
  }

  void by_bytes(const char* what, double bytes_moved, const std::function<void()>& body) {
    const double ms = device_.milliseconds(body), rate = bytes_moved / ms / 1e6;
    std::printf("%-44s %10.4f %7.0f GB/s %6.0f %%\n", what, ms, rate, 100 * rate / copy_rate_);
  }
  void by_flop(const char* what, double flop, const std::function<void()>& body) {
    const double ms = device_.milliseconds(body), rate = flop / ms / 1e9;
    std::printf("%-44s %10.4f %5.1f TFLOP/s %6.0f %%\n", what, ms, rate, 100 * rate / matmul_rate_);
  }

  void norms() {
    const int64_t count = s_.tokens * s_.hidden;
    const Buffer x = floats(count), hidden = floats(count), scratch = bytes(count * 4);
    const Buffer w = floats(s_.hidden), out = bytes(count * 2), amax = bytes(8), bad = bytes(8);
    const auto n = static_cast<double>(count);
    const AmaxSlot slot{amax.as<float>(), bad.as<uint64_t>()};
    for (const AmaxSlot seen : {AmaxSlot{}, slot})
      by_bytes(seen ? "norm, amax of its output" : "norm", 6 * n, [&] {
        b_.norm({.x = x.as<float>(),
                 .weight = w.as<float>(),
                 .epsilon = 1e-5f,
                 .rows = s_.tokens,
                 .width = s_.hidden,
                 .out_type = ComputeType::kBFloat16,
                 .out = out.data(),
                 .seen = seen});
      });
    by_bytes("residual_norm (norm, add, norm)", 14 * n, [&] {
      b_.residual_norm({.x = x.as<float>(),
                        .output_weight = w.as<float>(),
                        .multiplier = 1e-3f,
                        .hidden = hidden.as<float>(),
                        .next_weight = w.as<float>(),
                        .epsilon = 1e-5f,
                        .rows = s_.tokens,
                        .width = s_.hidden,
                        .scratch = scratch.as<float>(),
                        .out_type = ComputeType::kBFloat16,
                        .out = out.data()});
    });
  }

  void elementwise() {
    const int64_t count = s_.tokens * s_.inner;
    const Buffer x = floats(2 * count), out = bytes(count * 2), amax = bytes(8), bad = bytes(8);
    by_bytes("activate (SiLU, gated, amax)", 10.0 * static_cast<double>(count), [&] {
      b_.activate({.x = x.as<float>(),
                   .rows = s_.tokens,
                   .width = s_.inner,
                   .out_type = ComputeType::kBFloat16,
                   .out = out.data(),
                   .seen = {amax.as<float>(), bad.as<uint64_t>()}});
    });
    by_bytes("add", 12.0 * static_cast<double>(count), [&] {
      b_.add(
          {.x = x.as<float>(), .multiplier = 1e-3f, .count = count, .out = x.as<float>() + count});
    });
  }

  RopeArgs rope_of(const HeadsView& heads) {
    if (positions_.size() == 0) {
      std::vector<int32_t> rows;
      for (int64_t i = 0; i < s_.tokens; ++i) rows.push_back(static_cast<int32_t>(i % s_.sequence));
      positions_ = device_.upload(rows);
      angles_ = floats(s_.sequence * s_.head_dim / 2);
    }
    return {.x = heads,
            .positions = positions_.as<int32_t>(),
            .cos = angles_.as<float>(),
            .sin = angles_.as<float>(),
            .rotary_dim = s_.head_dim};
  }

  void cache() {
    const int64_t width = s_.kv_heads * s_.head_dim, count = s_.tokens * width;
    const Buffer q = floats(s_.tokens * s_.heads * s_.head_dim), kv = floats(2 * count);
    const HeadsView k{kv.as<float>(), s_.tokens, s_.kv_heads, s_.head_dim, 2 * width};
    HeadsView v = k;
    v.data += width;
    by_bytes(
        "rope of Q, in place", 8.0 * static_cast<double>(s_.tokens * s_.heads * s_.head_dim), [&] {
          b_.rope(
              rope_of({q.as<float>(), s_.tokens, s_.heads, s_.head_dim, s_.heads * s_.head_dim}));
        });
    const auto slots = static_cast<int64_t>(segments_.size()) * s_.kv_heads;
    const Buffer ranges = bytes(2 * slots * static_cast<int64_t>(sizeof(ObservedRange)));
    const Buffer bins = bytes(2 * s_.kv_heads * MagnitudeHistogram::kBins * 8);
    const Buffer scales =
        device_.upload(std::vector<float>(static_cast<size_t>(s_.kv_heads), 0.01f));
    const Buffer stored = bytes(8 * count), saturated = bytes(s_.kv_heads * 8);
    const auto side = [&](const HeadsView& x, int which, bool observes, bool stores,
                          KvDType dtype) {
      CacheSide result{.x = x};
      if (observes) {
        result.ranges = ranges.as<ObservedRange>() + which * slots;
        result.histogram = bins.as<uint64_t>() + which * s_.kv_heads * MagnitudeHistogram::kBins;
      }
      if (!stores) return result;
      result.dtype = dtype;
      result.scales = scales.as<float>();
      result.out = stored.data() + which * count * 4;
      result.saturated = is_fp8(dtype) ? saturated.as<uint64_t>() : nullptr;
      return result;
    };
    const auto pass = [&](const char* what, bool observes, bool stores, KvDType dtype) {
      const double moved = 4.0 + (stores ? bytes_per_element(dtype) : 0);
      by_bytes(what, 2 * moved * static_cast<double>(count), [&] {
        b_.enter_cache({.k = side(k, 0, observes, stores, dtype),
                        .v = side(v, 1, observes, stores, dtype),
                        .rope = rope_of(k),
                        .segments = segments_});
      });
    };
    pass("K and V: rope, extremes, histogram", true, false, KvDType::kFloat32);
    pass("K and V: rope, FP8 codes", false, true, KvDType::kFp8E4m3);
    pass("K and V: rope, extremes, histogram, FP8", true, true, KvDType::kFp8E4m3);
    pass("K and V: rope, extremes, histogram, float32", true, true, KvDType::kFloat32);
  }

  void attend(const char* what, const std::vector<Segment>& segments, KvDType dtype,
              bool is_decoding) {
    int64_t q_rows = 0, kv_rows = 0;
    double pairs = 0;
    for (const Segment& segment : segments) {
      q_rows += segment.q_count;
      kv_rows += segment.kv_count;
      pairs += static_cast<double>(segment.q_count) * static_cast<double>(segment.kv_count) -
               static_cast<double>(segment.q_count) * static_cast<double>(segment.q_count - 1) / 2;
    }
    const int64_t width = s_.kv_heads * s_.head_dim;
    const Buffer q = floats(q_rows * s_.heads * s_.head_dim);
    const Buffer k = device_.random_cache(kv_rows * width, dtype),
                 v = device_.random_cache(kv_rows * width, dtype);
    const Buffer scales =
        device_.upload(std::vector<float>(static_cast<size_t>(s_.kv_heads), 0.01f));
    const Buffer out = bytes(q_rows * s_.heads * s_.head_dim * 2);
    const auto body = [&] {
      b_.attention({.q = q.as<float>(),
                    .q_row_stride = s_.heads * s_.head_dim,
                    .k = k.data(),
                    .v = v.data(),
                    .kv_dtype = dtype,
                    .k_scales = scales.as<float>(),
                    .v_scales = scales.as<float>(),
                    .segments = segments,
                    .heads = s_.heads,
                    .kv_heads = s_.kv_heads,
                    .head_dim = s_.head_dim,
                    .softmax_scale = 0.088f,
                    .out_type = ComputeType::kBFloat16,
                    .out = out.data(),
                    .is_decoding = is_decoding});
    };
    if (is_decoding)
      by_bytes(what, 2.0 * static_cast<double>(kv_rows * width * bytes_per_element(dtype)), body);
    else
      by_flop(what, 4.0 * pairs * static_cast<double>(s_.heads * s_.head_dim), body);
  }

  void attention() {
    attend("attention, prefill, FP8 cache", segments_, KvDType::kFp8E4m3, false);
    attend("attention, prefill, float32 cache", segments_, KvDType::kFloat32, false);
    std::vector<Segment> steps;
    for (int64_t i = 0; i < (s_.is_small ? 2 : 16); ++i)
      steps.push_back({.q_begin = i,
                       .q_count = 1,
                       .kv_begin = i * s_.decode_tokens,
                       .kv_count = s_.decode_tokens});
    attend("attention, decoding, FP8 cache", steps, KvDType::kFp8E4m3, true);
    attend("attention, decoding, bfloat16 cache", steps, KvDType::kBFloat16, true);
  }

  void products() {
    const int64_t width = s_.heads * s_.head_dim;
    for (const auto& [what, in, out_features, accumulates] :
         {std::tuple{"product: Q", s_.hidden, width, false},
          {"product: K and V", s_.hidden, 2 * s_.kv_heads * s_.head_dim, false},
          {"product: output, added", width, s_.hidden, true},
          {"product: gate and up", s_.hidden, 2 * s_.inner, false},
          {"product: down, added", s_.inner, s_.hidden, true}}) {
      const auto w = weight(out_features, in);
      const Buffer x = device_.random_bf16(s_.tokens * in),
                   out = bytes(s_.tokens * out_features * 4);
      by_flop(what, 2.0 * static_cast<double>(s_.tokens * in) * static_cast<double>(out_features),
              [&] {
                b_.matmul({.x = x.data(),
                           .weight = *w,
                           .accumulate = accumulates,
                           .rows = s_.tokens,
                           .out = out.as<float>()});
              });
    }
    const auto w = weight(2 * s_.inner, s_.hidden);
    const Buffer x = device_.random_bf16(s_.hidden), out = bytes(8 * s_.inner);
    by_bytes("product of one row: gate and up", 4.0 * static_cast<double>(s_.inner * s_.hidden),
             [&] {
               b_.matmul({.x = x.data(),
                          .weight = *w,
                          .rows = 1,
                          .out = out.as<float>(),
                          .is_decoding = true});
             });
  }

  Device& device_;
  Backend& b_;
  Shapes s_;
  std::vector<Segment> segments_;
  Buffer positions_, angles_;
  double copy_rate_ = 0.0, matmul_rate_ = 0.0;
};

}  // namespace
}  // namespace kvcal::bench

int main(int argc, char** argv) {
  return kvcal::bench::run_program([&] {
    std::string name = std::string(kvcal::gpu_device_name());
    kvcal::bench::Shapes shapes;
    for (int i = 1; i < argc; ++i) {
      if (std::string(argv[i]) == "--small") {
        shapes = {64, 32, 64, 4, 2, 64, 96, 64, 96, true, shapes.only};
      } else if (std::string(argv[i]) == "--only" && i + 1 < argc) {
        shapes.only = argv[++i];
      } else if (std::string(argv[i]) == "--device" && i + 1 < argc) {
        name = argv[++i];
      } else {
        kvcal::fail("usage: device_kernels [--device cuda[:N]] [--small] [--only PART]");
      }
    }
    kvcal::bench::Device device(name, shapes.is_small);
    kvcal::bench::Kernels(device, shapes).run();
  });
}
