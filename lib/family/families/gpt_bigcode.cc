#include "family/tensor_tables.h"

namespace kvcal {

// GPT-2 with one K and V for all heads. Source: transformers, models/gpt_bigcode.
Architecture gpt_bigcode_architecture() {
  return {
      .name = "gpt_bigcode",
      .model_types = {"gpt_bigcode"},
      .attention_class = "GPTBigCodeAttention",
      .description = "SantaCoder, StarCoder",
      .defaults = R"({"n_positions": 1024, "activation_function": "gelu_pytorch_tanh",
                      "layer_norm_epsilon": 1e-5, "multi_query": true,
                      "tie_word_embeddings": true})",
      .aliases = {{"hidden_size", "n_embd"},
                  {"num_hidden_layers", "n_layer"},
                  {"num_attention_heads", "n_head"},
                  {"intermediate_size", "n_inner"},
                  {"max_position_embeddings", "n_positions"},
                  {"hidden_act", "activation_function"},
                  {"rms_norm_eps", "layer_norm_epsilon"}},
      .switches = {{"multi_query", &ModelConfig::multi_query}},
      .fixed = {{"scale_attn_weights", "true"}, {"add_cross_attention", "false"}},
      .resolve = [](const Json&, ModelConfig& config) { config.mlp_bias = true; },
      .centers_norm = true,
      .intermediate_multiple = 4,
      .positions = Positions::kLearned,
      .fused_qkv = FusedQkv::kByGroup,
      .prefixes = {{"transformer."}},
      .layers_name = "h.",
      .attention_module = "attn",
      .model_tensors =
          joined({model_rows_named("wte.weight", "ln_f.weight", "lm_head.weight"),
                  {{Role::kPositionEmbedding, "wpe.weight", {Dim::kPositions, Dim::kHidden}},
                   {Role::kFinalNormBias, "ln_f.bias", {Dim::kHidden}}}}),
      .layer_tensors =
          joined({{{Role::kInputNorm, "ln_1.weight", {Dim::kHidden}},
                   {Role::kInputNormBias, "ln_1.bias", {Dim::kHidden}},
                   {Role::kQueryKeyValue, "attn.c_attn.weight", {Dim::kQkvWidth, Dim::kHidden}},
                   {Role::kQueryKeyValueBias, "attn.c_attn.bias", {Dim::kQkvWidth}},
                   {Role::kOutput, "attn.c_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
                   {Role::kOutputBias, "attn.c_proj.bias", {Dim::kHidden}},
                   {Role::kMlpNorm, "ln_2.weight", {Dim::kHidden}},
                   {Role::kMlpNormBias, "ln_2.bias", {Dim::kHidden}}},
                  plain_mlp_rows("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
                                 "mlp.c_proj.bias")}),
      .ignored_suffixes = {".attn.bias", ".attn.masked_bias"},
  };
}

}  // namespace kvcal
