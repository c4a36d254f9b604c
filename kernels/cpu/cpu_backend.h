// Highway compiles kernels/cpu/*.cc for several instruction sets and selects one at run time;
// only tile_product.cc has instructions of our own, for products of bfloat16 pairs.
//
// A Gemm multiplies panels of a weight by blocks of rows: oneDNN's (onednn_gemm), with a few
// fixed heights that are checked to give the same bytes, or, for bfloat16 with AMX, our own
// (tile_gemm), because oneDNN 2.6 leaves half of the tiles idle on rows that lie a power of two
// apart. Epilogues run on a block while it is in the cache: bias and residual are the initial
// sums or are added when the block is written, and gate and up are never stored. Attention lays
// out K and V once a batch (tiled_cache), so that all queries and heads of a group read the same
// tiles, and skips blocks that no query of a task sees. Scores are relative to a reference that
// moves only when they leave ± 60 powers of two, so the running sums rarely need a correction. A
// thread keeps its rows: each begins every loop with the same part, so the output of one
// operation is in the cache of the core that reads it next. Batches have about 512 tokens a
// thread. Q has a product of its own, since the quantized mode needs K and V first; one product
// for all three was not faster.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/pack_shape.h"
#include "core/parallel.h"
#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/host_backend.h"

namespace kvcal::cpu {

/// Bytes of this machine's caches; typical values where the system does not tell. Caches that a
/// virtual machine shares with others count in full.
struct CacheSizes {
  int64_t level2 = int64_t{1} << 20;   ///< of a core
  int64_t level3 = int64_t{16} << 20;  ///< of all cores
};
CacheSizes cache_sizes();

/// Tokens of a batch whose activations, bytes_per_token each, stay in the caches of so many
/// threads. A lower limit keeps every thread busy and amortizes the weights; an upper limit saves
/// memory.
int64_t batch_tokens_near(const CacheSizes& caches, int threads, int64_t bytes_per_token);

/// The fast backend in host memory: oneDNN multiplies, vector code selected at run time does the
/// rest, and both use our threads. The division of work never depends on the number of threads.
class CpuBackend : public HostBackend {
 public:
  explicit CpuBackend(const BackendOptions& options);

  std::string_view name() const override { return "cpu"; }
  std::string description() const override;
  bool supports(ComputeType type) const override;
  ComputeType preferred_compute_type() const override;
  int64_t preferred_batch_tokens(int64_t bytes_per_token) const override {
    return batch_tokens_near(cache_sizes(), pool_.num_threads(), bytes_per_token);
  }

  void fill_zero(std::byte* data, size_t bytes) override;
  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override;
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                         std::span<const float> scales) override;
  std::unique_ptr<PackedMatrix> pack_decoded(std::span<const DecodedRows> parts,
                                             ComputeType type) override;
  uint64_t decoded_bytes(int64_t rows, int64_t width) const override;
  bool activates_in_matmul() const override { return true; }
  uint64_t attention_bytes_per_key(const AttentionArgs& args) const override;
  uint64_t selection_bytes_per_key() const override;

 protected:
  KVCAL_OPERATIONS(KVCAL_OVERRIDE_OPERATION)
  void do_residual_norm(const ResidualNormArgs& args) override;
  void do_enter_cache(const EnterCacheArgs& args) override;
  void do_matmul_activate(const MatmulActivateArgs& args) override;

 private:
  void attention_in_float32(const AttentionArgs& args);
  /// Attention with tile_instructions().
  void attention_in_tiles(const AttentionArgs& args);
  /// pack of checked parts; also F8_E4M3 parts, dequantized without their scales.
  std::unique_ptr<PackedMatrix> pack_checked(std::span<const TensorView> parts,
                                             const PackShape& shape, ComputeType type);
  /// Reads rows [first, first + count) of a weight as elements of the compute type, at any address
  /// aligned for float; valid until the thread's next call.
  using ReadRows = std::function<const void*(int64_t first, int64_t count, int thread)>;
  /// Packs rows that come in steps of at least least_rows, but for the last of a panel.
  std::unique_ptr<PackedMatrix> pack_rows(const PackShape& shape, ComputeType type,
                                          int64_t least_rows, const ReadRows& read);
  /// Calls body(begin, end) for blocks of rows with about the same number of elements.
  template <class Body>
  void for_row_blocks(int64_t rows, int64_t elements_per_row, const Body& body) {
    const int64_t block =
        std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, elements_per_row));
    pool_.parallel_for((rows + block - 1) / block, [&](int64_t index, int) {
      body(index * block, std::min(rows, (index + 1) * block));
    });
  }
  static constexpr int64_t kBlockElements = 32768;
  /// Calls run(begin, end) for such blocks, and folds the magnitudes that it may return into what
  /// the operation saw.
  template <class Args, class Run>
  void by_rows(const Args& args, int64_t rows, int64_t elements_per_row, const Run& run) {
    for_row_blocks(rows, elements_per_row, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_void_v<decltype(run(begin, end))>)
        run(begin, end);
      else
        fold_into(args.seen, run(begin, end));
    });
  }

  ThreadPool pool_;
  std::vector<Scratch> scratch_;   ///< one a thread
  std::vector<Scratch> decoded_;   ///< of pack_decoded, one a thread
  Scratch fp8_inputs_, fp8_sums_;  ///< of matmul_fp8, for all threads
  Scratch tiled_cache_;            ///< of attention_in_tiles, for all threads
  GemmLibrary gemms_;
};

/// Defines an operation by the vector code of some of its rows, operation_rows(args, begin, end).
#define KVCAL_BY_ROWS(operation, Args, rows, elements_per_row)              \
  HWY_EXPORT(operation##_rows);                                             \
  void CpuBackend::do_##operation(const Args& args) {                       \
    by_rows(args, rows, elements_per_row, [&](int64_t begin, int64_t end) { \
      return HWY_DYNAMIC_DISPATCH(operation##_rows)(args, begin, end);      \
    });                                                                     \
  }

}  // namespace kvcal::cpu

namespace kvcal {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

}  // namespace kvcal
