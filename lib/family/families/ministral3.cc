#include "family/tensor_tables.h"

namespace kvcal {

// Mistral with yarn, whose queries grow with the position. Source: transformers, models/ministral3.
Architecture ministral3_architecture() {
  return {
      .name = "ministral3",
      .model_types = {"ministral3"},
      .attention_class = "Ministral3Attention",
      .description = "Ministral 3",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                        "original_max_position_embeddings": 16384, "beta_fast": 32.0,
                        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "llama_4_scaling_beta": 0.1}})",
      .sliding_window = SlidingWindow::kAllLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
