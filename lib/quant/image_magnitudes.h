#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/calibration.h"

namespace kvcal {

/// How far K or V of tokens of images exceeds that of text.
struct ImageReach {
  double ratio = 0;                  ///< the largest image amax over text amax of a layer
  int64_t layer = 0;                 ///< which has it
  std::vector<int64_t> layers = {};  ///< whose images are larger than text, ascending
  bool operator==(const ImageReach&) const = default;
};
struct ImageMagnitudes {
  ImageReach k, v;
};

/// nullopt: no sample has images, or layers with text beside them are not known.
std::optional<ImageMagnitudes> image_magnitudes(std::span<const AttentionCalibration> layers);

/// "K of image tokens is up to 2.3 times that of text (layer 7), V up to 0.9 times (layer 3);
/// scales of text alone would clip K in layers 5 to 7"
std::string image_magnitudes_text(const ImageMagnitudes& magnitudes);

}  // namespace kvcal
