#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows persimmon_layer_rows() {
  return joined({
      pre_norm_rows(),
      pre_norm_bias_rows(),
      {{Role::kQueryKeyValue, "self_attn.query_key_value.weight", {Dim::kQkvWidth, Dim::kHidden}},
       {Role::kQueryKeyValueBias, "self_attn.query_key_value.bias", {Dim::kQkvWidth}},
       {Role::kOutput, "self_attn.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
       {Role::kOutputBias, "self_attn.dense.bias", {Dim::kHidden}}},
      with(when(&ModelConfig::has_qk_norm),
           {{Role::kQueryNorm, "self_attn.q_layernorm.weight", {Dim::kHeadDim}},
            {Role::kQueryNormBias, "self_attn.q_layernorm.bias", {Dim::kHeadDim}},
            {Role::kKeyNorm, "self_attn.k_layernorm.weight", {Dim::kHeadDim}},
            {Role::kKeyNormBias, "self_attn.k_layernorm.bias", {Dim::kHeadDim}}}),
      plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                     "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias"),
  });
}

}  // namespace

// LayerNorm with bias, also of the heads of Q and K. Source: transformers 5.23, models/persimmon.
Architecture persimmon_architecture() {
  return {
      .name = "persimmon",
      .model_types = {"persimmon"},
      .attention_class = "PersimmonAttention",
      .description = "Persimmon 8B",
      .defaults = R"({"hidden_act": "relu2", "layer_norm_eps": 1e-5, "qk_layernorm": true,
                      "partial_rotary_factor": 0.5, "max_position_embeddings": 16384})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .switches = {{"qk_layernorm", &ModelConfig::has_qk_norm}},
      // In the flat config.json of Fuyu.
      .known_keys = {"image_size", "patch_size", "num_channels"},
      .resolve = [](const Json&, ModelConfig& config) { config.mlp_bias = true; },
      .centers_norm = true,
      .fused_qkv = FusedQkv::kByGroup,
      .model_tensors = joined(
          {model_rows_named("embed_tokens.weight", "final_layernorm.weight", "lm_head.weight"),
           {{Role::kFinalNormBias, "final_layernorm.bias", {Dim::kHidden}}}}),
      .layer_tensors = persimmon_layer_rows(),
  };
}

}  // namespace kvcal
