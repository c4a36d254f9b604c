#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "kernels/cpu/tile_product.h"
#include "quant/half.h"

namespace kvcal::cpu {

/// Part of a weight: width output features of depth inputs each.
struct PanelShape {
  ComputeType type = ComputeType::kFloat32;
  int64_t depth = 0;
  int64_t width = 0;
  auto operator<=>(const PanelShape&) const = default;
};

/// Destination of a Gemm: out [height, stride] = start + x·panelᵀ, or out += x·panelᵀ.
struct GemmResult {
  float* out = nullptr;
  int64_t stride = 0;
  const float* start = nullptr;  ///< [width], added to every row; null: zero
  bool accumulate = false;       ///< adds to out; start is not read
};

/// Products with panels of one shape, for certain numbers of rows ("heights"). A row's result has
/// the same bytes at every height that height_for() gives and at every position. So it depends
/// neither on the number of rows nor on the number of threads.
class Gemm {
 public:
  struct Layout {
    PanelShape shape;
    size_t panel_bytes = 0;
    int64_t pack_step = 0;   ///< weight rows that are packed together: all of them or some
    int64_t x_stride = 0;    ///< elements in a row of x: depth, then zeros
    int64_t out_stride = 0;  ///< floats in a row of out: width, then unused ones
    /// Whether it takes any GemmResult, or only one of stride out_stride without accumulation.
    bool runs_in_place = false;
  };
  virtual ~Gemm() = default;
  const Layout& layout() const { return layout_; }
  /// Packs row-major [count, depth] of the shape's type, output features from `first` on, into the
  /// panel, which must be aligned to 64. first is a multiple of pack_step, and count equals
  /// pack_step except at the panel's end.
  virtual void pack(int64_t first, int64_t count, const void* rows, std::byte* panel,
                    int thread) const = 0;
  /// Height to use while `rows` rows (at least 1) are left; rows beyond them are padding.
  virtual int64_t height_for(int64_t rows) const = 0;
  /// x: [height, x_stride]. panel: packed.
  virtual void run(int64_t height, const void* x, const std::byte* panel, const GemmResult& result,
                   int thread) const = 0;

 protected:
  explicit Gemm(const Layout& layout) : layout_(layout) {}
  Layout layout_;
};

/// Best division of a weight.
struct GemmBlocking {
  int64_t tallest = 0;    ///< largest result of height_for()
  int64_t rows = 0;       ///< most rows of x for one task
  int64_t max_width = 0;  ///< of a panel
};

/// Gemms of all shapes so far: for bfloat16 our tiles where the processor has AMX, oneDNN where it
/// has other instructions for them; else float32's multiply-adds. Each call runs on the calling
/// thread; `thread` here and in Gemm selects working memory, so two threads may not use the same
/// number at once.
class GemmLibrary {
 public:
  explicit GemmLibrary(int num_threads);
  ~GemmLibrary();
  bool supports(ComputeType type) const;
  /// Whether bfloat16 products are faster than float32 here.
  bool has_fast_bfloat16() const;
  /// Name of the implementation for bfloat16: "amx_bf16", oneDNN's, or "float32".
  std::string implementation() const;
  GemmBlocking blocking(ComputeType type, int64_t depth) const;
  /// The Gemm of a shape, made on first use by one thread at a time; lives as long as the library.
  const Gemm& get(const PanelShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Stops oneDNN from starting threads of its own. Call it in each thread that runs a Gemm.
void use_one_thread_here();

/// bfloat16 multiplications by tile_product's instructions, at any height of whole tiles.
std::unique_ptr<Gemm> make_tile_gemm(const PanelShape& shape);
/// Rows of x, so few that a block of them stays in the level 2 cache even where rows lie a power of
/// two apart; and the widest panel, whose sums for two panels take a quarter of that cache.
constexpr int64_t kTileGemmTallest = 256, kTileGemmMaxWidth = 256;

/// Multiplications by float32's fused multiply-adds, of float32 and of bfloat16, whose products are
/// exact in float32: out[i] = fma(x[depth - 1], w[depth - 1], ... fma(x[0], w[0], start)), at any
/// height, by any processor that fuses.
std::unique_ptr<Gemm> make_float_gemm(const PanelShape& shape);
GemmBlocking float_gemm_blocking(ComputeType type, int64_t depth);

/// Weights in the form that products of pairs of bfloat16 read: for each group of columns, output
/// features, [pairs of input features, columns].
struct PairColumns {
  int64_t columns = 0;      ///< in a group, a multiple of 4
  uint32_t* out = nullptr;  ///< the group's first pair of the first column to write
};

/// Writes rows of a weight [rows, 2 * pairs] as columns of one group. The columns up to the next
/// multiple of four repeat the last row.
void pack_pair_columns(const BF16* weight, int64_t rows, int64_t pairs, const PairColumns& to);

}  // namespace kvcal::cpu
