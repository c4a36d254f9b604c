#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/cwm.
Architecture cwm_architecture() {
  return {
      .name = "cwm",
      .model_types = {"cwm"},
      .attention_class = "CwmAttention",
      .description = "CWM",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_theta": 1e6, "sliding_window": 8192, "sliding_window_pattern": 4,
                      "rope_scaling": {"rope_type": "llama3", "factor": 16.0,
                        "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                        "original_max_position_embeddings": 8192}})",
      .switches = {{"mlp_bias", &ModelConfig::mlp_bias}},
      .sliding_window = SlidingWindow::kPatternFromFirst,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
