#include "family/image_rules.h"

#include <algorithm>

#include "family/model_config.h"

namespace kvcal {

using WholeLayers = ImageRules::WholeLayers;

// One row a wrapper.
const std::vector<ImageRules>& image_rules() {
  static const std::vector<ImageRules> kTable{
      {"gemma3", {}, false, WholeLayers::kEverywhere},
      {"gemma4", {}, false, WholeLayers::kInWindowsWhereSaid},
      {"idefics3"},
      {"internvl"},
      {"llama4"},
      {"llava"},
      {"llava_onevision"},
      {"mistral3"},
      {"qwen2_5_vl", {16, 24, 24}},
      {"qwen2_vl", {16, 24, 24}},
      {"qwen3_5", {11, 11, 10}, true},
      {"qwen3_5_moe", {11, 11, 10}, true},
      {"qwen3_vl", {24, 20, 20}, true},
      {"qwen3_vl_moe", {24, 20, 20}, true},
      {"smolvlm"},
  };
  return kTable;
}

const ImageRules* image_rules_of(std::string_view wrapper_type) {
  const auto found = std::ranges::find(image_rules(), wrapper_type, &ImageRules::model_type);
  return found == image_rules().end() ? nullptr : &*found;
}

void resolve_images(const Json& text, ModelConfig& config) {
  const ImageRules* rules = image_rules_of(config.wrapper_type);
  if (!rules || rules->whole_layers == WholeLayers::kNowhere) return;
  const bool is_everywhere = rules->whole_layers == WholeLayers::kEverywhere;
  if (!is_everywhere && optional_string(text, "use_bidirectional_attention") != "vision") return;
  for (LayerConfig& layer : config.layers)
    layer.sees_images_whole = is_everywhere || layer.has_window;
}

}  // namespace kvcal
