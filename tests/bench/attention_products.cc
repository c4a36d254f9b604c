// The tile products that attention cannot do without, and nothing else of it: no softmax, no
// reading of the cache. Their rate is what attention with products of bfloat16 can at most reach.
#include <algorithm>

#include "bench/kernel_bench.h"
#include "kernels/cpu/score_rows.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::bench {
namespace {

using cpu::TileProduct;

constexpr int64_t kRows = 64, kKeys = 128;

/// One KV head of a causal sequence: each task of kRows rows (a query of each of its heads) meets
/// the blocks of keys it sees. parts: 2 as attention does it, 1 as if a query were one bfloat16.
class Products {
 public:
  Products(int64_t head_dim, int64_t heads, int64_t parts)
      : head_dim_(head_dim),
        heads_(heads),
        q_(ones(2 * kRows * head_dim)),
        weights_(ones(kRows * kKeys)),
        block_(ones(kKeys * head_dim)),
        scores_(ones(2 * kRows * kKeys)),
        out_(ones(2 * kRows * head_dim)),
        rest_(parts > 1 ? q_.as<const BF16>() + kRows * head_dim : nullptr) {}

  void sequence(const cpu::TileSession& tiles, int64_t length) {
    for (int64_t row = 0; row < length * heads_; row += kRows) {
      const int64_t last_token = std::min(length - 1, (row + kRows - 1) / heads_);
      for (int64_t key = 0; key <= last_token; key += kKeys)
        meet(tiles, (std::min(kKeys, last_token + 1 - key) + cpu::kTileColumns - 1) /
                        cpu::kTileColumns * cpu::kTileColumns);
    }
  }

 private:
  void meet(const cpu::TileSession& tiles, int64_t keys) {
    tiles.multiply({.a = q_.as<BF16>(),
                    .a_stride = head_dim_,
                    .a_rest = rest_,
                    .b = block_.as<uint32_t>(),
                    .b_stride = kKeys,
                    .c = scores_.as<float>(),
                    .c_stride = kKeys,
                    .rows = kRows,
                    .columns = keys,
                    .steps = head_dim_});
    tiles.multiply({.a = weights_.as<BF16>(),
                    .a_stride = kKeys,
                    .b = block_.as<uint32_t>(),
                    .b_stride = head_dim_,
                    .c = out_.as<float>(),
                    .c_stride = head_dim_,
                    .rows = kRows,
                    .columns = head_dim_,
                    .steps = keys,
                    .accumulate = true});
    benchmark::DoNotOptimize(out_.data());
  }

  /// count bfloat16 of 1, on a cache line as attention's are.
  static Buffer ones(int64_t count) {
    Buffer buffer = backend(1).allocate(static_cast<size_t>(count) * sizeof(BF16));
    std::fill_n(buffer.as<BF16>(), count, BF16{0x3f80});
    return buffer;
  }

  int64_t head_dim_, heads_;
  Buffer q_, weights_, block_, scores_, out_;
  const BF16* rest_;
};

void attention_products(benchmark::State& state) {
  const int64_t length = state.range(0), head_dim = state.range(1);
  const int64_t heads = state.range(2), kv_heads = state.range(3);
  if (cpu::tile_instructions() == cpu::TileInstructions::kNone) {
    state.SkipWithError("this processor multiplies no tiles");
    return;
  }
  const cpu::TileSession tiles(cpu::tile_instructions());
  Products products(head_dim, heads / kv_heads, state.range(4));
  for (auto _ : state)
    for (int64_t head = 0; head < kv_heads; ++head) products.sequence(tiles, length);
  set_flop(state, attention_flop(0, length, 0, 2 * heads * head_dim), ComputeType::kBFloat16, 1);
}
BENCHMARK(attention_products)
    ->ArgNames({"length", "head_dim", "heads", "kv_heads", "query_parts"})
    ->ArgsProduct({{512, 2048}, {64}, {9}, {3}, {1, 2}})
    ->ArgsProduct({{512, 2048}, {128}, {32}, {8}, {1, 2}})
    ->MeasureProcessCPUTime();

/// The steps of eight queries and a block of keys where scores become weights in registers, each
/// alone: what the queries' rests add, the scores and their weights, weights times values. Blocks
/// change as in a long sequence. As many FLOP are counted for the rests as for scores.
void attention_step(benchmark::State& state, int step) {
  if (!cpu::weighs_in_registers()) {
    state.SkipWithError("this processor weighs no scores in registers");
    return;
  }
  constexpr int64_t kBlocks = 8, kQueries = cpu::ScoreRows::kRows;
  const int64_t head_dim = state.range(0), block = kKeys * head_dim / 2;
  std::vector<uint32_t> k(static_cast<size_t>(kBlocks * block), 0x3c003d00u), v = k, bytes = k;
  std::vector<BF16> q(static_cast<size_t>(kQueries * head_dim), BF16{0x3d00}),
      weights(kQueries * kKeys, BF16{0x3d00});
  std::vector<int8_t> rest(q.size(), 3);
  const std::vector<float> scales(kKeys, 1e-5f), starts(kQueries * 16, -2.0f);
  std::vector<float> scores(kQueries * kKeys), sums(kQueries * 16), out(q.size());
  const std::vector<int32_t> zeros(kQueries), last(kQueries, kKeys);
  int64_t index = 0;
  for (auto _ : state) {
    const int64_t at = index++ % kBlocks * block;
    const cpu::ScoreRows rows{head_dim,      q.data(),          rest.data(),   scales.data(),
                              zeros.data(),  starts.data(),     kKeys,         kKeys,
                              k.data() + at, bytes.data() + at, scales.data(), scores.data()};
    if (step == 0) cpu::start_scores(rows);
    if (step == 1)
      cpu::weigh_started(rows, {zeros.data(), last.data()}, sums.data(), weights.data());
    if (step == 2) cpu::add_values({weights.data(), kKeys, v.data() + at, head_dim, out.data()});
    benchmark::ClobberMemory();
  }
  const auto flop = static_cast<double>(2 * kQueries * kKeys * head_dim);
  set_flop(state, flop, ComputeType::kBFloat16, 1);
}
BENCHMARK_CAPTURE(attention_step, rests, 0)->Arg(64)->Arg(128)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(attention_step, weights, 1)->Arg(64)->Arg(128)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(attention_step, values, 2)->Arg(64)->Arg(128)->MeasureProcessCPUTime();

}  // namespace
}  // namespace kvcal::bench
