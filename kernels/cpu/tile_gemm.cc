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

/// For each kTileColumns of the width: pairs [depth / 2, kTileColumns].
struct TilePanel : Panel {
  explicit TilePanel(const uint32_t* packed) : pairs(packed) {}
  const uint32_t* pairs;
};

class TileGemm : public Gemm {
 public:
  explicit TileGemm(const PanelShape& shape)
      : shape_(shape),
        depth_(round_up(shape.depth, kTileSteps)),
        width_(round_up(shape.width, kTileColumns)) {}

  const PanelShape& shape() const override { return shape_; }
  size_t panel_bytes() const override {
    return static_cast<size_t>(depth_ * width_) * sizeof(BF16);
  }
  int64_t x_stride() const override { return depth_; }
  int64_t out_stride() const override { return width_; }

  int64_t pack_step() const override { return kTileColumns; }
  void pack(int64_t first, int64_t count, const void* rows, std::byte* storage,
            int) const override {
    const auto* weight = static_cast<const BF16*>(rows);
    std::vector<BF16> padded;
    if (depth_ != shape_.depth) {
      padded.assign(static_cast<size_t>(depth_ * count), BF16{});
      for (int64_t row = 0; row < count; ++row)
        std::copy_n(weight + row * shape_.depth, shape_.depth, padded.data() + row * depth_);
      weight = padded.data();
    }
    auto* out = reinterpret_cast<uint32_t*>(storage) + first * depth_ / 2;
    pack_pair_columns(weight, count, depth_ / 2, {.columns = kTileColumns, .out = out});
  }
  std::unique_ptr<Panel> panel_in(std::byte* storage) const override {
    return std::make_unique<TilePanel>(reinterpret_cast<uint32_t*>(storage));
  }

  int64_t height_for(int64_t rows) const override {
    return std::clamp(rows / kTileRows * kTileRows, kTileRows, kTileGemmTallest);
  }

  bool runs_in_place() const override {
    const bool writes_its_columns_alone = width_ == shape_.width;
    return writes_its_columns_alone && depth_ <= kMostStepsInPlace;
  }
  void run(int64_t height, const void* x, const Panel& panel, const GemmResult& result,
           int) const override {
    const uint32_t* pairs = static_cast<const TilePanel&>(panel).pairs;
    const TileSession tiles(tile_instructions());
    for (int64_t step = 0; step < depth_; step += kDepth)
      for (int64_t column = 0; column < width_; column += kTileColumns)
        tiles.multiply({.a = static_cast<const BF16*>(x) + step,
                        .a_stride = depth_,
                        .b = pairs + column * depth_ / 2 + step / 2 * kTileColumns,
                        .b_stride = kTileColumns,
                        .c = result.out + column,
                        .c_stride = result.stride,
                        .rows = height,
                        .columns = kTileColumns,
                        .steps = std::min(kDepth, depth_ - step),
                        .start = result.start ? result.start + column : nullptr,
                        .accumulate = result.accumulate || step > 0});
  }

 private:
  PanelShape shape_;
  int64_t depth_, width_;  ///< in whole tiles
};

}  // namespace

std::unique_ptr<Gemm> make_tile_gemm(const PanelShape& shape) {
  KVCAL_CHECK(shape.type == ComputeType::kBFloat16);
  return std::make_unique<TileGemm>(shape);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
