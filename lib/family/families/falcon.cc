#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows norm_rows() {
  const Condition two = when(&ModelConfig::has_parallel_norms);
  const Condition one = unless(&ModelConfig::has_parallel_norms);
  const Condition sequential = unless(&ModelConfig::parallel_residual);
  return {
      {Role::kInputNorm, "ln_attn.weight", {Dim::kHidden}, {two}},
      {Role::kInputNormBias, "ln_attn.bias", {Dim::kHidden}, {two}},
      {Role::kMlpNorm, "ln_mlp.weight", {Dim::kHidden}, {two}},
      {Role::kMlpNormBias, "ln_mlp.bias", {Dim::kHidden}, {two}},
      {Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}, {one}},
      {Role::kInputNormBias, "input_layernorm.bias", {Dim::kHidden}, {one}},
      {Role::kMlpNorm, "post_attention_layernorm.weight", {Dim::kHidden}, {sequential}},
      {Role::kMlpNormBias, "post_attention_layernorm.bias", {Dim::kHidden}, {sequential}},
  };
}

TensorRows attention_rows_of_falcon() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {Role::kQueryKeyValue,
       "self_attention.query_key_value.weight",
       {Dim::kQkvWidth, Dim::kHidden}},
      {Role::kQueryKeyValueBias, "self_attention.query_key_value.bias", {Dim::kQkvWidth}, {biased}},
      {Role::kOutput, "self_attention.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {Role::kOutputBias, "self_attention.dense.bias", {Dim::kHidden}, {biased}},
  };
}

/// Which norms a layer has. Source: transformers FalconDecoderLayer.
void resolve_norms(const Json& config, ModelConfig& resolved) {
  const bool has_one = optional_int(config, "num_ln_in_parallel_attn").value_or(2) == 1;
  resolved.has_parallel_norms =
      resolved.parallel_residual && resolved.new_decoder_architecture && !has_one;
  resolved.has_mlp_norm = resolved.has_parallel_norms || !resolved.parallel_residual;
}

}  // namespace

// Source: transformers, models/falcon.
Architecture falcon_architecture() {
  return {
      .name = "falcon",
      .model_types = {"falcon"},
      .attention_class = "FalconAttention",
      .description = "Falcon 7B, 11B, 40B, 180B",
      .defaults = R"({"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5,
                      "multi_query": true, "parallel_attn": true, "activation": "gelu",
                      "tie_word_embeddings": true})",
      .aliases = {{"num_hidden_layers", "n_layer"},
                  {"num_attention_heads", "n_head"},
                  {"num_key_value_heads", "num_kv_heads"},
                  {"intermediate_size", "ffn_hidden_size"},
                  {"hidden_act", "activation"},
                  {"rms_norm_eps", "layer_norm_epsilon"}},
      .switches = {{"bias", &ModelConfig::attention_bias},
                   {"bias", &ModelConfig::mlp_bias},
                   {"multi_query", &ModelConfig::multi_query},
                   {"new_decoder_architecture", &ModelConfig::new_decoder_architecture},
                   {"parallel_attn", &ModelConfig::parallel_residual}},
      .fixed = {{"alibi", "false"}},
      .known_keys = {"num_ln_in_parallel_attn", "apply_residual_connection_post_layernorm"},
      .resolve = resolve_norms,
      .centers_norm = true,
      .intermediate_multiple = 4,
      .fused_qkv = FusedQkv::kByGroup,
      .prefixes = {{"transformer."}},
      .layers_name = "h.",
      .attention_module = "self_attention",
      .model_tensors =
          joined({model_rows_named("word_embeddings.weight", "ln_f.weight", "lm_head.weight"),
                  {{Role::kFinalNormBias, "ln_f.bias", {Dim::kHidden}}}}),
      .layer_tensors =
          joined({norm_rows(), attention_rows_of_falcon(),
                  plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                                 "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias")}),
  };
}

}  // namespace kvcal
