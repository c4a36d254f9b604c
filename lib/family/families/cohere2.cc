#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/cohere2.
Architecture cohere2_architecture() {
  return {
      .name = "cohere2",
      .model_types = {"cohere2"},
      .attention_class = "Cohere2Attention",
      .description = "Command R7B, Command A",
      .defaults = R"({"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "tie_word_embeddings": true,
                      "max_position_embeddings": 8192, "sliding_window": 4096,
                      "sliding_window_pattern": 4})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .switches = attention_bias_switches(),
      .numbers = {{"logit_scale", &ModelConfig::logits_multiplier}},
      .fixed = {{"use_qk_norm", "false"}},
      .known_keys = {"order_of_interleaved_layers", "rotary_pct", "position_embedding_type",
                     "use_gated_activation", "use_parallel_block", "use_embedding_sharing"},
      .resolve = share_parallel_norm,
      .centers_norm = true,
      .rope_is_interleaved = true,
      .positions = Positions::kRopeInSlidingLayers,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
