#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows own_head_norm_rows() {
  const Condition normed = when(&ModelConfig::has_qk_norm);
  return {
      {Role::kQueryNorm,
       "self_attn.q_layernorm.norms.{}.weight",
       {Dim::kHeadDim},
       {normed},
       Layout::kOutIn,
       Dim::kHeads},
      {Role::kKeyNorm,
       "self_attn.k_layernorm.norms.{}.weight",
       {Dim::kHeadDim},
       {normed},
       Layout::kOutIn,
       Dim::kKvHeads},
  };
}

}  // namespace

// Source: transformers, models/stablelm.
Architecture stablelm_architecture() {
  return {
      .name = "stablelm",
      .model_types = {"stablelm"},
      .attention_class = "StableLmAttention",
      .description = "StableLM 2, StableLM Zephyr",
      .defaults = R"({"num_key_value_heads": 32, "layer_norm_eps": 1e-5,
                      "partial_rotary_factor": 0.25})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .switches = {{"use_qkv_bias", &ModelConfig::attention_bias},
                   {"qk_layernorm", &ModelConfig::has_qk_norm},
                   {"use_parallel_residual", &ModelConfig::parallel_residual}},
      .resolve = [](const Json&,
                    ModelConfig& config) { config.has_mlp_norm = !config.parallel_residual; },
      .centers_norm = true,
      .qk_norm = QkNorm::kPerHeadOwnWeight,
      .model_tensors =
          joined({model_rows(), {{Role::kFinalNormBias, "norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({pre_norm_rows(), pre_norm_bias_rows(), attention_rows(),
                               own_head_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
