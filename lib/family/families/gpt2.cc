#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows gpt2_layer_rows() {
  return {
      {Role::kInputNorm, "ln_1.weight", {Dim::kHidden}},
      {Role::kInputNormBias, "ln_1.bias", {Dim::kHidden}},
      {Role::kQueryKeyValue,
       "attn.c_attn.weight",
       {Dim::kHidden, Dim::kQkvWidth},
       {},
       Layout::kInOut},
      {Role::kQueryKeyValueBias, "attn.c_attn.bias", {Dim::kQkvWidth}},
      {Role::kOutput, "attn.c_proj.weight", {Dim::kQueryWidth, Dim::kHidden}, {}, Layout::kInOut},
      {Role::kOutputBias, "attn.c_proj.bias", {Dim::kHidden}},
      {Role::kMlpNorm, "ln_2.weight", {Dim::kHidden}},
      {Role::kMlpNormBias, "ln_2.bias", {Dim::kHidden}},
      {Role::kUp, "mlp.c_fc.weight", {Dim::kHidden, Dim::kIntermediate}, {}, Layout::kInOut},
      {Role::kUpBias, "mlp.c_fc.bias", {Dim::kIntermediate}},
      {Role::kDown, "mlp.c_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {}, Layout::kInOut},
      {Role::kDownBias, "mlp.c_proj.bias", {Dim::kHidden}},
  };
}

}  // namespace

// Source: transformers, models/gpt2.
Architecture gpt2_architecture() {
  return {
      .name = "gpt2",
      .model_types = {"gpt2", "gpt-sw3"},
      .attention_class = "GPT2Attention",
      .description = "GPT-2, DistilGPT2",
      .defaults = R"({"n_positions": 1024, "activation_function": "gelu_new",
                      "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
      .aliases = {{"hidden_size", "n_embd"},
                  {"num_hidden_layers", "n_layer"},
                  {"num_attention_heads", "n_head"},
                  {"intermediate_size", "n_inner"},
                  {"max_position_embeddings", "n_positions"},
                  {"hidden_act", "activation_function"},
                  {"rms_norm_eps", "layer_norm_epsilon"}},
      .fixed = {{"scale_attn_weights", "true"},
                {"scale_attn_by_inverse_layer_idx", "false"},
                {"add_cross_attention", "false"}},
      .centers_norm = true,
      .intermediate_multiple = 4,
      .positions = Positions::kLearned,
      .prefixes = {{""}, {"transformer."}},
      .layers_name = "h.",
      .attention_module = "attn",
      .model_tensors =
          joined({model_rows_named("wte.weight", "ln_f.weight", "lm_head.weight"),
                  {{Role::kPositionEmbedding, "wpe.weight", {Dim::kPositions, Dim::kHidden}},
                   {Role::kFinalNormBias, "ln_f.bias", {Dim::kHidden}}}}),
      .layer_tensors = gpt2_layer_rows(),
      .ignored_suffixes = {".attn.bias", ".attn.masked_bias"},
  };
}

}  // namespace kvcal
