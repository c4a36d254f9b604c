#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/calibration.h"

namespace kvcal {

/// Layers whose K or V is still largest in the last quarter of positions: longer samples are likely
/// to have larger values.
struct LatePositions {
  std::vector<int64_t> k_layers = {}, v_layers = {};  ///< ascending
  int64_t first = 0;                                  ///< the first of those positions
  int64_t advised = 0;                                ///< tokens that samples should have
};

/// longest_sample: its tokens; 0: not known. max_positions: of the model; 0: no limit. nullopt
/// where no layer is one, where the longest sample has fewer than 64 tokens or already as many as
/// the model, and where positions are not known. The last quarter of the longest sample begins with
/// the bucket of positions nearest to it. A layer counts where its values there are larger than all
/// before by more than 1/16, half a step of E4M3's codes, which keeps out most of those that are
/// largest there by chance.
std::optional<LatePositions> late_positions(std::span<const AttentionCalibration> layers,
                                            int64_t longest_sample, int64_t max_positions);

/// "K of layers 3, 7 and V of layer 2 are still largest at the last positions, from 384 on: choose
/// samples of 1024 tokens or more"
std::string late_positions_text(const LatePositions& late);

}  // namespace kvcal
