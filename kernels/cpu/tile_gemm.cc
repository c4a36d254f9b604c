#include "kernels/cpu/tile_gemm.h"

#include <algorithm>

#include "core/checked.h"
#include "core/error.h"
#include "kernels/cpu/pair_columns.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::cpu {

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
