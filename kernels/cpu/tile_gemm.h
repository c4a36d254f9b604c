#pragma once

#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::cpu {

/// bfloat16 multiplications by tile_product's instructions, at any height of whole tiles.
std::unique_ptr<Gemm> make_tile_gemm(const PanelShape& shape);
/// Rows of x, so few that a block of them stays in the level 2 cache even where rows lie a power of
/// two apart; and the widest panel, whose sums for two panels take a quarter of that cache.
constexpr int64_t kTileGemmTallest = 256, kTileGemmMaxWidth = 256;

}  // namespace kvcal::cpu
