#include "family/tensor_tables.h"

namespace kvcal {

// GPT-2 with windows in every other layer and scores that are not scaled. Source: transformers,
// models/gpt_neo.
Architecture gpt_neo_architecture() {
  return {
      .name = "gpt_neo",
      .model_types = {"gpt_neo"},
      .attention_class = "GPTNeoSelfAttention",
      .description = "GPT-Neo",
      .defaults = R"({"max_position_embeddings": 2048, "activation_function": "gelu_new",
                      "layer_norm_epsilon": 1e-5, "window_size": 256,
                      "attention_types": [[["global", "local"], 12]],
                      "tie_word_embeddings": true})",
      .aliases = {{"num_hidden_layers", "num_layers"},
                  {"num_attention_heads", "num_heads"},
                  {"sliding_window", "window_size"},
                  {"hidden_act", "activation_function"},
                  {"rms_norm_eps", "layer_norm_epsilon"}},
      .known_keys = {"attention_layers"},
      .resolve =
          [](const Json&, ModelConfig& config) {
            config.output_bias = config.mlp_bias = true;
            config.softmax_scale = 1.0f;
          },
      .centers_norm = true,
      .intermediate_multiple = 4,
      .positions = Positions::kLearned,
      .sliding_window = SlidingWindow::kAttentionTypes,
      .prefixes = {{"transformer."}},
      .layers_name = "h.",
      .attention_module = "attn.attention",
      .model_tensors =
          joined({model_rows_named("wte.weight", "ln_f.weight", "lm_head.weight"),
                  {{Role::kPositionEmbedding, "wpe.weight", {Dim::kPositions, Dim::kHidden}},
                   {Role::kFinalNormBias, "ln_f.bias", {Dim::kHidden}}}}),
      .layer_tensors =
          joined({{{Role::kInputNorm, "ln_1.weight", {Dim::kHidden}},
                   {Role::kInputNormBias, "ln_1.bias", {Dim::kHidden}},
                   {Role::kMlpNorm, "ln_2.weight", {Dim::kHidden}},
                   {Role::kMlpNormBias, "ln_2.bias", {Dim::kHidden}}},
                  attention_rows_named({.query = "attn.attention.q_proj.weight",
                                        .key = "attn.attention.k_proj.weight",
                                        .value = "attn.attention.v_proj.weight",
                                        .output = "attn.attention.out_proj.weight",
                                        .output_bias = "attn.attention.out_proj.bias"}),
                  plain_mlp_rows("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
                                 "mlp.c_proj.bias")}),
      .ignored_suffixes = {".attn.attention.bias", ".attn.attention.masked_bias"},
  };
}

}  // namespace kvcal
