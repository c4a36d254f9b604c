#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/gptj.
Architecture gptj_architecture() {
  return {
      .name = "gptj",
      .model_types = {"gptj"},
      .attention_class = "GPTJAttention",
      .description = "GPT-J",
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
      .known_keys = {"rotary", "scale_attn_weights"},
      .resolve =
          [](const Json& json, ModelConfig& config) {
            share_parallel_norm(json, config);
            config.mlp_bias = true;
          },
      .centers_norm = true,
      .rope_is_interleaved = true,
      .counts_rotary_dim = true,
      .intermediate_multiple = 4,
      .prefixes = {{"transformer."}},
      .layers_name = "h.",
      .attention_module = "attn",
      .model_tensors = joined({model_rows_named("wte.weight", "ln_f.weight", "lm_head.weight"),
                               {{Role::kFinalNormBias, "ln_f.bias", {Dim::kHidden}},
                                {Role::kLmHeadBias, "lm_head.bias", {Dim::kVocab}}}}),
      .layer_tensors = joined({{{Role::kInputNorm, "ln_1.weight", {Dim::kHidden}},
                                {Role::kInputNormBias, "ln_1.bias", {Dim::kHidden}}},
                               attention_rows_named({.query = "attn.q_proj.weight",
                                                     .key = "attn.k_proj.weight",
                                                     .value = "attn.v_proj.weight",
                                                     .output = "attn.out_proj.weight"}),
                               plain_mlp_rows("mlp.fc_in.weight", "mlp.fc_in.bias",
                                              "mlp.fc_out.weight", "mlp.fc_out.bias")}),
      .ignored_suffixes = {".attn.bias", ".attn.masked_bias"},
  };
}

}  // namespace kvcal
