#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows gpt_neox_layer_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return joined({
      pre_norm_rows(),
      pre_norm_bias_rows(),
      {{Role::kQueryKeyValue, "attention.query_key_value.weight", {Dim::kQkvWidth, Dim::kHidden}},
       {Role::kQueryKeyValueBias, "attention.query_key_value.bias", {Dim::kQkvWidth}, {biased}},
       {Role::kOutput, "attention.dense.weight", {Dim::kHidden, Dim::kQueryWidth}},
       {Role::kOutputBias, "attention.dense.bias", {Dim::kHidden}, {biased}}},
      plain_mlp_rows("mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias",
                     "mlp.dense_4h_to_h.weight", "mlp.dense_4h_to_h.bias"),
  });
}

}  // namespace

// Source: transformers, models/gpt_neox.
Architecture gpt_neox_architecture() {
  return {
      .name = "gpt_neox",
      .model_types = {"gpt_neox"},
      .attention_class = "GPTNeoXAttention",
      .description = "GPT-NeoX, Pythia, Dolly",
      .defaults = R"({"rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5,
                      "use_parallel_residual": true, "attention_bias": true,
                      "hidden_act": "gelu", "max_position_embeddings": 2048})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"},
                  {"partial_rotary_factor", "rotary_pct"},
                  {"rope_theta", "rotary_emb_base"}},
      .switches = {{"use_parallel_residual", &ModelConfig::parallel_residual},
                   {"attention_bias", &ModelConfig::attention_bias}},
      .resolve = [](const Json&, ModelConfig& config) { config.mlp_bias = true; },
      .centers_norm = true,
      .fused_qkv = FusedQkv::kByGroup,
      .prefixes = {{"gpt_neox."}},
      .attention_module = "attention",
      .model_tensors = joined(
          {model_rows_named("embed_in.weight", "final_layer_norm.weight", "embed_out.weight"),
           {{Role::kFinalNormBias, "final_layer_norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = gpt_neox_layer_rows(),
      .ignored_suffixes = {".attention.bias", ".attention.masked_bias"},
  };
}

}  // namespace kvcal
