#include "quant/image_magnitudes.h"

#include "core/text.h"

namespace kvcal {
namespace {

void add(const KvTensorCalibration& side, int64_t layer, ImageReach& reach) {
  const auto& kinds = side.kind_amax;
  if (!kinds || !(kinds->text.value > 0)) return;
  const double ratio =
      static_cast<double>(kinds->images.value) / static_cast<double>(kinds->text.value);
  if (ratio > 1) reach.layers.push_back(layer);
  if (ratio <= reach.ratio) return;
  reach.ratio = ratio;
  reach.layer = layer;
}

std::string reach_text(const char* name, const ImageReach& reach) {
  return std::string(name) + " up to " + fixed("%.2f", reach.ratio) + " times (layer " +
         std::to_string(reach.layer) + ")";
}

}  // namespace

std::optional<ImageMagnitudes> image_magnitudes(std::span<const AttentionCalibration> layers) {
  ImageMagnitudes all;
  for (const AttentionCalibration& layer : layers) {
    if (layer.ignored || layer.reads_cache_of) continue;
    add(layer.k, layer.layer, all.k);
    add(layer.v, layer.layer, all.v);
  }
  if (all.k.ratio == 0 || all.v.ratio == 0) return std::nullopt;
  return all;
}

std::string image_magnitudes_text(const ImageMagnitudes& magnitudes) {
  std::string text = "of image tokens against text: " + reach_text("K", magnitudes.k) + ", " +
                     reach_text("V", magnitudes.v);
  std::vector<std::string> clipped;
  for (const auto& [name, reach] : {std::pair{"K", &magnitudes.k}, std::pair{"V", &magnitudes.v}})
    if (!reach->layers.empty())
      clipped.push_back(std::string(name) + " of " + layer_range_text(reach->layers));
  return text + (clipped.empty() ? "; scales of text alone would clip nothing"
                                 : "; scales of text alone would clip " + join(clipped, " and "));
}

}  // namespace kvcal
