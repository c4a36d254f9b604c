// Attention's share of the processor's limit for products by processor time, for machines that do
// other work: after each call a loop of independent multiply-adds runs on as many threads, and the
// middle of the pairs' ratios counts.
//   attention_share [--threads N] [--pairs N] [--lengths N,...] [--head-dims N,...] [--json]
#include <cstdio>
#include <string>
#include <vector>

#include "bench/instruction_loop.h"
#include "bench/machine_rate.h"
#include "bench/program.h"
#include "core/error.h"
#include "core/json.h"
#include "kernels/backends.h"

namespace kvcal::bench {
namespace {

struct Options {
  int64_t threads = 1, pairs = 15;
  std::vector<int64_t> lengths{512, 2048, 8192}, head_dims{64, 128, 256};
  bool json = false;
};

ComputeType product_type(const Backend& backend) {
  return backend.supports(ComputeType::kBFloat16) ? ComputeType::kBFloat16 : ComputeType::kFloat32;
}

/// One sequence's attention. Heads are those of SmolLM2, of an 8B Llama and of Gemma, of which it
/// has as many KV heads as threads.
class Sequence {
 public:
  Sequence(Backend& backend, KvDType dtype, int64_t length, int64_t head_dim, int64_t kv_heads)
      : backend_(backend),
        type_(product_type(backend)),
        dtype_(dtype),
        segments_{{.q_count = length, .kv_count = length}},
        head_dim_(head_dim),
        kv_heads_(kv_heads),
        heads_(kv_heads * (head_dim == 64 ? 3 : 4)),
        scales_(static_cast<size_t>(kv_heads), 0.01f) {
    q_ = backend.allocate(static_cast<size_t>(length * heads_ * head_dim) * sizeof(float));
    out_ = backend.allocate(q_.size());
    for (int64_t i = 0; i < length * heads_ * head_dim; ++i) q_.as<float>()[i] = value(i);
    std::vector<float> x(static_cast<size_t>(length * kv_heads * head_dim));
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.0f * value(static_cast<int64_t>(7 * i));
    cache_ = backend.allocate(x.size() * static_cast<size_t>(bytes_per_element(dtype)));
    backend.store_kv({.x = {x.data(), length, kv_heads, head_dim, kv_heads * head_dim},
                      .dtype = dtype,
                      .scales = scales_.data(),
                      .out = cache_.data()});
  }
  double flop() const { return attention_flop(0, segments_[0].q_count, 0, 2 * heads_ * head_dim_); }
  void run() {
    backend_.attention({.q = q_.as<float>(),
                        .q_row_stride = heads_ * head_dim_,
                        .k = cache_.data(),
                        .v = cache_.data(),
                        .kv_dtype = dtype_,
                        .k_scales = scales_.data(),
                        .v_scales = scales_.data(),
                        .segments = segments_,
                        .heads = heads_,
                        .kv_heads = kv_heads_,
                        .head_dim = head_dim_,
                        .softmax_scale = 0.125f,
                        .product_type = type_,
                        .out_type = type_,
                        .out = out_.data()});
  }

 private:
  /// Numbers in [-1, 1) without a period that tiles could share.
  static float value(int64_t i) {
    const uint32_t mixed = static_cast<uint32_t>(i) * 2654435761u;
    return static_cast<float>(mixed >> 8) * 0x1p-23f - 1.0f;
  }

  Backend& backend_;
  ComputeType type_;
  KvDType dtype_;
  std::vector<Segment> segments_;
  int64_t head_dim_, kv_heads_, heads_;
  std::vector<float> scales_;
  Buffer q_, out_, cache_;
};

template <class Body>
double cpu_seconds_of(const Body& body) {
  const double begin = process_cpu_seconds();
  body();
  return process_cpu_seconds() - begin;
}

/// Of the processor's limit; long sequences run once a pair, short ones several times.
double share(Sequence& sequence, const InstructionLoop& loop, int threads, int64_t pairs) {
  sequence.run();
  const auto times = static_cast<int64_t>(1 + 5e9 / sequence.flop());
  std::vector<double> ratios;
  for (int64_t i = 0; i < pairs; ++i) {
    const double seconds = cpu_seconds_of([&] {
      for (int64_t time = 0; time < times; ++time) sequence.run();
    });
    const double whole = cpu_seconds_of([&] { on_threads(threads, [&](int) { loop.run(); }); });
    ratios.push_back(static_cast<double>(times) * sequence.flop() / seconds * whole /
                     (threads * loop.flop()));
  }
  return middle_of(ratios);
}

void print(const Json& row) {
  std::printf(
      "head_dim %3d, %5d tokens, of the limit by processor time (%s): bf16 cache %.1f %%, "
      "FP8 %.1f %%, float32 %.1f %%\n",
      row["head_dim"].get<int>(), row["length"].get<int>(),
      row["limit"].get_ref<const std::string&>().c_str(), 100 * row["bf16"].get<double>(),
      100 * row["fp8"].get<double>(), 100 * row["float32"].get<double>());
}

void run(const Options& options) {
  const auto backend = kBackends.at("cpu")({.num_threads = static_cast<int>(options.threads)});
  const ComputeType type = product_type(*backend);
  const InstructionLoop loop(type);
  Json rows = Json::array();
  for (const int64_t head_dim : options.head_dims)
    for (const int64_t length : options.lengths) {
      Json row{{"head_dim", head_dim},
               {"length", length},
               {"threads", options.threads},
               {"limit", loop.name()}};
      for (const auto& [name, dtype] :
           {std::pair{"bf16", KvDType::kBFloat16}, std::pair{"fp8", KvDType::kFp8E4m3},
            std::pair{"float32", KvDType::kFloat32}}) {
        Sequence sequence(*backend, dtype, length, head_dim, options.threads);
        row[name] = share(sequence, loop, static_cast<int>(options.threads), options.pairs);
      }
      if (!options.json) print(row);
      std::fflush(stdout);
      rows.push_back(std::move(row));
    }
  if (options.json) std::printf("%s\n", rows.dump(1).c_str());
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      options.json = true;
      continue;
    }
    if (i + 1 == argc) fail("no value of ", word);
    const std::string value = argv[++i];
    if (word == "--threads") {
      options.threads = std::stoll(value);
    } else if (word == "--pairs") {
      options.pairs = std::stoll(value);
    } else if (word == "--lengths") {
      options.lengths = numbers_in(value);
    } else if (word == "--head-dims") {
      options.head_dims = numbers_in(value);
    } else {
      fail("unknown option ", word);
    }
  }
  return options;
}

}  // namespace
}  // namespace kvcal::bench

int main(int argc, char** argv) {
  return kvcal::bench::run_program([&] { kvcal::bench::run(kvcal::bench::parse(argc, argv)); });
}
