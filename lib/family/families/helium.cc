#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/helium.
Architecture helium_architecture() {
  return {
      .name = "helium",
      .model_types = {"helium"},
      .attention_class = "HeliumAttention",
      .description = "Helium",
      .defaults = R"({"num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8,
                      "rope_theta": 100000})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias}},
      .rope_is_interleaved = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
