#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/seed_oss.
Architecture seed_oss_architecture() {
  return {
      .name = "seed_oss",
      .model_types = {"seed_oss"},
      .attention_class = "SeedOssAttention",
      .description = "Seed-OSS",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "attention_bias": true})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_out_bias", &ModelConfig::output_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias}},
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
