#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/ernie4_5.
Architecture ernie4_5_architecture() {
  return {
      .name = "ernie4_5",
      .model_types = {"ernie4_5"},
      .attention_class = "Ernie4_5Attention",
      .description = "ERNIE 4.5 0.3B",
      .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_theta": 500000, "tie_word_embeddings": true})",
      .switches = {{"use_bias", &ModelConfig::attention_bias},
                   {"use_bias", &ModelConfig::output_bias},
                   {"use_bias", &ModelConfig::mlp_bias}},
      .rope_is_interleaved = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
