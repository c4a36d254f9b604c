#include "family/tensor_tables.h"

namespace kvcal {

// Source: modeling_internlm3.py of the published checkpoints.
Architecture internlm3_architecture() {
  return {
      .name = "internlm3",
      .model_types = {"internlm3"},
      .attention_class = "InternLM3Attention",
      .description = "InternLM 3",
      .switches = {{"qkv_bias", &ModelConfig::attention_bias},
                   {"bias", &ModelConfig::output_bias},
                   {"bias", &ModelConfig::mlp_bias}},
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
