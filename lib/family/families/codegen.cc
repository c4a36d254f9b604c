#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// The rows of Q, K and V lie in four blocks.
void resolve_blocks(const Json& json, ModelConfig& config) {
  share_parallel_norm(json, config);
  config.mlp_bias = true;
  if (config.num_attention_heads % 4 != 0)
    fail("key 'n_head' is ", config.num_attention_heads, ", expected a multiple of 4");
}

}  // namespace

// GPT-J with fused Q, V and K. Source: transformers, models/codegen.
Architecture codegen_architecture() {
  return {
      .name = "codegen",
      .model_types = {"codegen"},
      .attention_class = "CodeGenAttention",
      .description = "CodeGen",
      .defaults = R"({"n_positions": 2048, "rotary_dim": 64, "activation_function": "gelu_new",
                      "layer_norm_epsilon": 1e-5})",
      .aliases = {{"hidden_size", "n_embd"},
                  {"num_hidden_layers", "n_layer"},
                  {"num_attention_heads", "n_head"},
                  {"intermediate_size", "n_inner"},
                  {"max_position_embeddings", "n_positions"},
                  {"hidden_act", "activation_function"},
                  {"rms_norm_eps", "layer_norm_epsilon"}},
      .fixed = {{"rope_theta", "10000.0"}, {"rope_scaling", "null"}, {"rope_parameters", "null"}},
      .known_keys = {"scale_attn_weights"},
      .resolve = resolve_blocks,
      .centers_norm = true,
      .rope_is_interleaved = true,
      .counts_rotary_dim = true,
      .intermediate_multiple = 4,
      .fused_qkv = FusedQkv::kFourBlocks,
      .prefixes = {{"transformer."}},
      .layers_name = "h.",
      .attention_module = "attn",
      .model_tensors = joined({model_rows_named("wte.weight", "ln_f.weight", "lm_head.weight"),
                               {{Role::kFinalNormBias, "ln_f.bias", {Dim::kHidden}},
                                {Role::kLmHeadBias, "lm_head.bias", {Dim::kVocab}}}}),
      .layer_tensors =
          joined({{{Role::kInputNorm, "ln_1.weight", {Dim::kHidden}},
                   {Role::kInputNormBias, "ln_1.bias", {Dim::kHidden}},
                   {Role::kQueryKeyValue, "attn.qkv_proj.weight", {Dim::kQkvWidth, Dim::kHidden}},
                   {Role::kOutput, "attn.out_proj.weight", {Dim::kHidden, Dim::kQueryWidth}}},
                  plain_mlp_rows("mlp.fc_in.weight", "mlp.fc_in.bias", "mlp.fc_out.weight",
                                 "mlp.fc_out.bias")}),
      .ignored_suffixes = {".attn.bias", ".attn.causal_mask", ".attn.masked_bias"},
  };
}

}  // namespace kvcal
