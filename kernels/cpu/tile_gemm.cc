#include <algorithm>

#include "core/error.h"
#include "core/number.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_gemm.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

void pack_columns(const BF16* weight, int64_t rows, int64_t pairs, const PairColumns& to) {
  // Pairs of bfloat16 are moved as if they were float32. The output stays in the level 1 cache
  // until all rows have passed.
  constexpr int64_t kPairs = 128;
  const auto* from = reinterpret_cast<const float*>(weight);
  auto* out = reinterpret_cast<float*>(to.out);
  for (int64_t pair = 0; pair < pairs; pair += kPairs)
    for (int64_t row = 0; row < rows; row += 4) {
      const float* four[4];
      for (int64_t i = 0; i < 4; ++i) four[i] = from + std::min(row + i, rows - 1) * pairs + pair;
      rows_to_columns(four, std::min(kPairs, pairs - pair), out + pair * to.columns + row,
                      to.columns);
    }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {

HWY_EXPORT(pack_columns);

void pack_pair_columns(const BF16* weight, int64_t rows, int64_t pairs, const PairColumns& to) {
  HWY_DYNAMIC_DISPATCH(pack_columns)(weight, rows, pairs, to);
}

namespace {

/// Number of steps whose weights, [kDepth, kTileColumns], take less than half of a level 1 cache of
/// 48 KiB, where they stay while all rows pass.
constexpr int64_t kDepth = 320;
/// Rows of a wide result lie far apart, so sums of many steps are added up in a tile of their own.
constexpr int64_t kMostStepsInPlace = 2048;

/// A panel has for each kTileColumns of the width pairs [depth / 2, kTileColumns]. Depth and width
/// are those of whole tiles.
Gemm::Layout tile_layout(const PanelShape& shape) {
  const int64_t depth = round_up(shape.depth, kTileSteps);
  const int64_t width = round_up(shape.width, kTileColumns);
  const bool writes_its_columns_alone = width == shape.width;
  return {.shape = shape,
          .panel_bytes = static_cast<size_t>(depth * width) * sizeof(BF16),
          .pack_step = kTileColumns,
          .x_stride = depth,
          .out_stride = width,
          .runs_in_place = writes_its_columns_alone && depth <= kMostStepsInPlace};
}

class TileGemm : public Gemm {
 public:
  explicit TileGemm(const PanelShape& shape) : Gemm(tile_layout(shape)) {}

  void pack(int64_t first, int64_t count, const void* rows, std::byte* panel, int) const override {
    const int64_t depth = layout_.x_stride, given = layout_.shape.depth;
    const auto* weight = static_cast<const BF16*>(rows);
    std::vector<BF16> padded;
    if (depth != given) {
      padded.assign(static_cast<size_t>(depth * count), BF16{});
      for (int64_t row = 0; row < count; ++row)
        std::copy_n(weight + row * given, given, padded.data() + row * depth);
      weight = padded.data();
    }
    auto* out = reinterpret_cast<uint32_t*>(panel) + first * depth / 2;
    pack_pair_columns(weight, count, depth / 2, {.columns = kTileColumns, .out = out});
  }

  int64_t height_for(int64_t rows) const override {
    return std::clamp(rows / kTileRows * kTileRows, kTileRows, kTileGemmTallest);
  }

  void run(int64_t height, const void* x, const std::byte* panel, const GemmResult& result,
           int) const override {
    const int64_t depth = layout_.x_stride;
    const auto* pairs = reinterpret_cast<const uint32_t*>(panel);
    const TileSession tiles(tile_instructions());
    for (int64_t step = 0; step < depth; step += kDepth)
      for (int64_t column = 0; column < layout_.out_stride; column += kTileColumns)
        tiles.multiply({.a = static_cast<const BF16*>(x) + step,
                        .a_stride = depth,
                        .b = pairs + column * depth / 2 + step / 2 * kTileColumns,
                        .b_stride = kTileColumns,
                        .c = result.out + column,
                        .c_stride = result.stride,
                        .rows = height,
                        .columns = kTileColumns,
                        .steps = std::min(kDepth, depth - step),
                        .start = result.start ? result.start + column : nullptr,
                        .accumulate = result.accumulate || step > 0});
  }
};

}  // namespace

std::unique_ptr<Gemm> make_tile_gemm(const PanelShape& shape) {
  KVCAL_CHECK(shape.type == ComputeType::kBFloat16);
  return std::make_unique<TileGemm>(shape);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
