#include "family/tensor_tables.h"

namespace kvcal {

// Granite's multipliers, with norms before and behind. Source: transformers, models/hyperclovax.
Architecture hyperclovax_architecture() {
  return {
      .name = "hyperclovax",
      .model_types = {"hyperclovax"},
      .attention_class = "HyperCLOVAXAttention",
      .description = "HyperCLOVA X SEED",
      .defaults = R"({"use_post_norm": true})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias},
                   {"use_post_norm", &ModelConfig::has_output_norms}},
      .numbers = {{"embedding_multiplier", &ModelConfig::embedding_multiplier},
                  {"attention_multiplier", &ModelConfig::softmax_scale},
                  {"residual_multiplier", &ModelConfig::residual_multiplier},
                  {"logits_scaling", &ModelConfig::logits_multiplier}},
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), attention_rows(), mlp_rows(),
                  with(when(&ModelConfig::has_output_norms),
                       {{Role::kAttentionOutputNorm, "post_norm1.weight", {Dim::kHidden}},
                        {Role::kMlpOutputNorm, "post_norm2.weight", {Dim::kHidden}}})}),
  };
}

}  // namespace kvcal
