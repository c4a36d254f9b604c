#include "model/families/families.h"

namespace kvcal {

// Mistral 7B. Source: transformers, models/mistral: Llama with a window over all layers and no
// bias.
Architecture mistral_architecture() {
  return {
      .name = "mistral",
      .model_types = {"mistral"},
      .attention_class = "MistralAttention",
      .sliding_window = SlidingWindow::kAllLayers,
      .has_bias_switches = false,
      .model_tensors = llama_model_tensors(),
      .layer_tensors = llama_layer_tensors(),
      .ignored_suffixes = {".self_attn.rotary_emb.inv_freq"},
  };
}

}  // namespace kvcal
