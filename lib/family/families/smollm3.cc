#include "family/tensor_tables.h"

namespace kvcal {

// Llama whose every fourth layer has no positions. Source: transformers, models/smollm3.
Architecture smollm3_architecture() {
  return {
      .name = "smollm3",
      .model_types = {"smollm3"},
      .attention_class = "SmolLM3Attention",
      .description = "SmolLM3",
      .defaults = R"({"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": true,
                      "no_rope_layer_interval": 4})",
      .switches = bias_switches(),
      .fixed = {{"use_sliding_window", "false"}},
      .known_keys = {"layer_types", "max_window_layers"},
      .positions = Positions::kRopeWhereListed,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
