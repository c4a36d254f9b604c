#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows phi_layer_rows() {
  return joined({
      {{Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
       {Role::kInputNormBias, "input_layernorm.bias", {Dim::kHidden}},
       {Role::kOutput, "self_attn.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
       {Role::kOutputBias, "self_attn.dense.bias", {Dim::kHidden}}},
      query_key_value_rows(),
      plain_mlp_rows("mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias"),
  });
}

}  // namespace

// Source: transformers, models/phi.
Architecture phi_architecture() {
  return {
      .name = "phi",
      .model_types = {"phi"},
      .attention_class = "PhiAttention",
      .description = "Phi-1, Phi-1.5, Phi-2",
      .defaults = R"({"partial_rotary_factor": 0.5, "hidden_act": "gelu_new",
                      "layer_norm_eps": 1e-5})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .fixed = {{"qk_layernorm", "false"}},
      .resolve =
          [](const Json&, ModelConfig& config) {
            config.parallel_residual = true;
            config.has_mlp_norm = false;
            config.attention_bias = config.mlp_bias = config.lm_head_bias = true;
          },
      .centers_norm = true,
      .model_tensors = joined(
          {model_rows_named("embed_tokens.weight", "final_layernorm.weight", "lm_head.weight"),
           {{Role::kFinalNormBias, "final_layernorm.bias", {Dim::kHidden}},
            {Role::kLmHeadBias, "lm_head.bias", {Dim::kVocab}}}}),
      .layer_tensors = phi_layer_rows(),
  };
}

}  // namespace kvcal
