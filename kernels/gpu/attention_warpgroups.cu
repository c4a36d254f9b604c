#include "kernels/gpu/attention.h"

#if KVCAL_HAS_WARP_MATRIX
#include "kernels/gpu/attention_rows.h"
#include "kernels/gpu/warpgroup_matrix.h"

// Attention with the matrix instructions of warpgroups, in the steps of attention_matrix.cu. They
// run beside the threads: while a tile's values are multiplied by its weights, and the next tile's
// keys by the queries, the threads write the tiles behind them to shared memory and make the next
// tile's weights (after FlashAttention-3, Shah et al. 2024). Both warpgroups of a block read the
// same tiles and meet at one barrier a tile.
namespace kvcal::gpu {
namespace {

template <class Kv, int kDim>
class WarpgroupAttend : AttentionRows<WarpgroupTiles<Kv, kDim>> {
  using Base = AttentionRows<WarpgroupTiles<Kv, kDim>>;
  using Base::args_, Base::rows_, Base::store_, Base::scores_, Base::out_;

 public:
  using Tiles = typename Base::Tiles;
  using Half = typename Base::Half;
  using Base::Base;

  __device__ __forceinline__ void run() {
    const BlockKeys keys(args_, rows_);
    const int begin = keys.first / kMatrixKeys * kMatrixKeys;
    last_ = keys.last / kMatrixKeys * kMatrixKeys;
    start_first(begin);
    await_products<0>();
    make_weights(begin, keys.is_masked(begin, kMatrixKeys));
    round_all_weights();
    await_tiles();
    for (int tile = begin; tile < last_; tile += kMatrixKeys) {
      const int next = tile + kMatrixKeys;
      set_apart(tile, keys);
      fence_all();
      start_keys(next);
      start_values(tile);
      load_values(next);
      await_products<1>();
      make_weights(next, keys.is_masked(next, kMatrixKeys));
      load_keys(next + kMatrixKeys);
      await_products<0>();
      hold_all();
      KVCAL_UNROLL
      for (int half = 0; half < 2; ++half) this->rescale_sums(0, half, correction_[half]);
      round_all_weights();
      await_tiles();
    }
    set_apart(last_, keys);
    fence_all();
    start_values(last_);
    await_products<0>();
    hold_all();
    this->write(rows_);
  }

 private:
  static constexpr int kParts = Tiles::kQueryParts, kQuerySteps = kDim / 16;
  static constexpr int kKeySteps = kMatrixKeys / 16;

  __device__ __forceinline__ uint16_t* buffer(int side, int tile) const {
    return (side == 1 ? store_.v : store_.k) +
           static_cast<unsigned>(tile) / kMatrixKeys % 2 * Tiles::kTileElements;
  }
  __device__ __forceinline__ static uint64_t described(const uint16_t* at) {
    return panel_descriptor(shared_address(at));
  }

  /// By what a descriptor is more that begins so many elements behind another.
  __device__ __forceinline__ static constexpr uint64_t moved(int elements) {
    return static_cast<uint64_t>(elements) * 2 / 16;
  }

  /// Starts to load a tile: of 16-bit elements into its buffer, of codes into registers, which hold
  /// one tile.
  __device__ __forceinline__ void fetch(int side, int tile) {
    if (tile > last_) return;
    if constexpr (Tiles::kHasCodes)
      store_.load_codes(codes_, side, tile);
    else
      store_.copy_tile(buffer(side, tile), side, tile);
  }
  /// Converts codes in registers to a tile in its buffer.
  __device__ __forceinline__ void settle(int side, int tile) {
    if (tile > last_) return;
    store_.put_codes(codes_, buffer(side, tile));
  }
  /// Loads a tile of values that the next round multiplies, and later of keys. Registers have the
  /// codes of these values, and then of those that follow.
  __device__ __forceinline__ void load_values(int tile) {
    if constexpr (Tiles::kHasCodes) {
      settle(1, tile);
      fetch(0, tile + kMatrixKeys);
    } else {
      fetch(1, tile);
      fetch(0, tile + kMatrixKeys);
    }
  }
  __device__ __forceinline__ void load_keys(int tile) {
    if constexpr (Tiles::kHasCodes) {
      settle(0, tile);
      fetch(1, tile);
    }
  }
  /// Returns when products may read what all threads loaded, and threads write what they read.
  __device__ __forceinline__ static void await_tiles() {
    if constexpr (Tiles::kIsDirect) await_copies();
    publish_shared();
    __syncthreads();
  }

  /// Loads the queries and the first tiles, and starts the first scores.
  __device__ __forceinline__ void start_first(int begin) {
    store_.start();
    fetch(0, begin);
    if constexpr (Tiles::kIsDirect) fetch(1, begin);
    store_.load_queries();
    this->start_rows();
    load_keys(begin);
    if constexpr (Tiles::kHasCodes) load_values(begin);
    await_tiles();
    load_query_fragments();
    fence_all();
    start_keys(begin);
    if constexpr (Tiles::kHasCodes)
      load_keys(begin + kMatrixKeys);
    else
      fetch(0, begin + kMatrixKeys);
  }

  __device__ __forceinline__ void load_query_fragments() {
    if constexpr (Tiles::kKeepsQueries) {
      KVCAL_UNROLL
      for (int step = 0; step < kQuerySteps; ++step) {
        KVCAL_UNROLL
        for (int part = 0; part < kParts; ++part)
          load_matrices(q_[step][part].words,
                        store_.q + part * Tiles::kQueryElements +
                            Tiles::query_at(warp() * 16 + lane() % 16, 2 * step + lane() / 16),
                        false);
      }
    }
  }

  /// Of this warpgroup, where registers do not hold them. The compiler would keep one for each step
  /// in registers, if it knew the address to be the same in each round.
  __device__ __forceinline__ uint64_t described_queries() const {
    if constexpr (Tiles::kKeepsQueries) return 0;
    uint32_t address = shared_address(store_.q + static_cast<int>(threadIdx.x) / kWarpgroup *
                                                     Tiles::kPanels * Tiles::kPanelElements);
    hold(address);
    return panel_descriptor(address);
  }

  __device__ __forceinline__ void start_keys(int tile) {
    const uint64_t keys = described(buffer(0, tile));
    const uint64_t queries = described_queries();
    KVCAL_UNROLL
    for (int step = 0; step < kQuerySteps; ++step) {
      const uint64_t at = moved(step / 4 * Tiles::kPanelElements + step % 4 * 16);
      KVCAL_UNROLL
      for (int part = 0; part < kParts; ++part) {
        if constexpr (Tiles::kKeepsQueries)
          add_keys(step + part > 0, q_[step][part], keys + at);
        else
          add_keys(step + part > 0, queries + moved(part * Tiles::kQueryElements) + at, keys + at);
      }
    }
    commit_products();
  }
  template <class A>
  __device__ __forceinline__ void add_keys(bool adds, const A& queries, uint64_t keys) {
    if (adds)
      start_product<Half, false, true>(scores_[0], queries, keys);
    else
      start_product<Half, false, false>(scores_[0], queries, keys);
  }
  __device__ __forceinline__ void start_values(int tile) {
    const uint64_t values = described(buffer(1, tile));
    KVCAL_UNROLL
    for (int step = 0; step < kKeySteps; ++step) {
      KVCAL_UNROLL
      for (int panel = 0; panel < Tiles::kPanels; ++panel) {
        const int at = panel * Tiles::kPanelElements + step * 16 * kPanelColumns;
        KVCAL_UNROLL
        for (int part = 0; part < kParts; ++part)
          start_product<Half, true, true>(out_[0] + panel * kWarpgroupSums, weights_[step][part][0],
                                          values + moved(at));
      }
    }
    commit_products();
  }

  /// Converts sums of products to softmax weights; keeps what out_ is to be multiplied by.
  __device__ __forceinline__ void make_weights(int tile, bool is_masked) {
    hold_scores();
    this->scale_scores(tile, is_masked);
    this->soften([&](int, int half, float by) { correction_[half] = by; });
    hold_scores();  // now, beside the products
  }
  __device__ __forceinline__ void round_all_weights() {
    KVCAL_UNROLL
    for (int step = 0; step < kKeySteps; ++step) this->round_weights(step, weights_[step]);
  }
  __device__ __forceinline__ void set_apart(int tile, const BlockKeys& keys) {
    if (!keys.is_masked(tile, kMatrixKeys)) return;
    if (this->set_nonfinite_values_apart(tile, buffer(1, tile))) await_tiles();
  }

  __device__ __forceinline__ void hold_scores() {
    this->for_each_score([](float& score, int, int, int) { hold(score); });
  }
  __device__ __forceinline__ void fence_all() {
    hold_all();
    fence_registers();
  }
  __device__ __forceinline__ void hold_all() {
    hold_scores();
    KVCAL_UNROLL
    for (int i = 0; i < 4 * Base::kValueTiles; ++i) hold(out_[0][i / 4].sums[i % 4]);
    KVCAL_UNROLL
    for (int i = 0; i < 4 * kKeySteps * kParts; ++i)
      hold(weights_[i / 4 / kParts][i / 4 % kParts][0].words[i % 4]);
  }

  int last_;  ///< tile
  typename MatrixStore<Tiles>::Codes codes_[MatrixStore<Tiles>::kCodesOfThread];
  FragmentA q_[kQuerySteps][kParts];
  FragmentA weights_[kKeySteps][kParts][1];
  float correction_[2];
};

template <class Kv, int kDim>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    attend_with_warpgroups_kernel([[maybe_unused]] DeviceAttention args,
                                  [[maybe_unused]] AttentionGrid grid) {
#if KVCAL_CHIP_HAS_WARPGROUP_MATRIX
  const BlockRows rows = rows_of_block(args, grid);
  if (rows.count == 0) return;
  std::byte* shared = dynamic_shared();
  shared += (0u - shared_address(shared)) % WarpgroupTiles<Kv, kDim>::kAlignment;
  WarpgroupAttend<Kv, kDim>(args, rows, shared).run();
#endif
}

/// Heads of 96 are computed as of 128. Float32 caches, whose products take three, have no kernel,
/// nor have heads of 256 in bfloat16, whose queries in two parts leave no room for four tiles.
template <class Kv, int kDim>
struct WarpgroupKernel : WarpgroupTiles<Kv, kDim == 96 ? 128 : kDim> {
  static constexpr auto kEntry = attend_with_warpgroups_kernel < Kv, kDim == 96 ? 128 : kDim > ;
};
template <int kDim>
struct WarpgroupKernel<float, kDim> {};
template <>
struct WarpgroupKernel<BF16, 256> {};

}  // namespace

bool attend_with_warpgroups(Stream& stream, const DeviceAttention& args,
                            const DeviceProperties& chip) {
  std::string reason;  // the kernel for warps says why it is slow
  return launch_for_shape<WarpgroupKernel>(stream, args, chip, reason);
}

}  // namespace kvcal::gpu

#else

namespace kvcal::gpu {

bool attend_with_warpgroups(Stream&, const DeviceAttention&, const DeviceProperties&) {
  return false;
}

}  // namespace kvcal::gpu

#endif
