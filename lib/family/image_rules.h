#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace kvcal {

struct ModelConfig;

/// How the decoder of a multimodal model type runs tokens of images.
struct ImageRules {
  /// Layers in which tokens of an image see all of it: none; all; or those with a window, where
  /// use_bidirectional_attention is "vision".
  enum class WholeLayers : uint8_t { kNowhere, kEverywhere, kInWindowsWhereSaid };
  std::string_view model_type;  ///< of the wrapper
  /// M-RoPE's sections where mrope_section is absent; 0: tokens of images have positions of text.
  std::array<int64_t, 3> sections{};
  bool sections_are_interleaved = false;
  WholeLayers whole_layers = WholeLayers::kNowhere;
};

/// The wrappers whose samples may hold images, in the order in which users see them. Source:
/// transformers 5.24, each model's modeling file.
const std::vector<ImageRules>& image_rules();
/// Those of a wrapper; nullptr: samples with images do not run.
const ImageRules* image_rules_of(std::string_view wrapper_type);

/// Sets what the rules say of the layers. text: the text model's object of config.json.
void resolve_images(const Json& text, ModelConfig& config);

}  // namespace kvcal
