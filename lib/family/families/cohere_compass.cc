#include "family/tensor_tables.h"

namespace kvcal {

// Command R7B's layers; each type of layer has a rope of its own or, where that is null, none.
// Source: transformers, models/cohere_compass.
Architecture cohere_compass_architecture() {
  return {
      .name = "cohere_compass",
      .model_types = {"cohere_compass_text"},
      .attention_class = "CohereCompassAttention",
      .description = "North Micro, also the text part of multimodal checkpoints",
      .defaults = R"({"layer_norm_eps": 1e-5, "tie_word_embeddings": true, "sliding_window": 4096,
                      "max_position_embeddings": 8192})",
      .text_defaults = R"({"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528,
                           "num_hidden_layers": 40, "num_attention_heads": 64})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .switches = attention_bias_switches(),
      .numbers = {{"logit_scale", &ModelConfig::logits_multiplier}},
      .known_keys = {"pooling"},
      .resolve = share_parallel_norm,
      .centers_norm = true,
      .positions = Positions::kRopeByLayerType,
      .sliding_window = SlidingWindow::kTyped,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
