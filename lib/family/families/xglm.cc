#include <cmath>

#include "family/tensor_tables.h"

namespace kvcal {

namespace {

void resolve_biases_of_xglm(const Json& config, ModelConfig& resolved) {
  resolved.attention_bias = resolved.output_bias = resolved.mlp_bias = true;
  if (optional_bool(config, "scale_embedding").value_or(true))
    resolved.embedding_multiplier = std::sqrt(static_cast<float>(resolved.hidden_size));
}

}  // namespace

// Source: transformers, models/xglm.
Architecture xglm_architecture() {
  return {
      .name = "xglm",
      .model_types = {"xglm"},
      .attention_class = "XGLMAttention",
      .description = "XGLM",
      .defaults = R"({"max_position_embeddings": 2048, "activation_function": "gelu",
                      "rms_norm_eps": 1e-5, "scale_embedding": true,
                      "tie_word_embeddings": true})",
      .aliases = {{"hidden_size", "d_model"},
                  {"num_hidden_layers", "num_layers"},
                  {"num_attention_heads", "attention_heads"},
                  {"intermediate_size", "ffn_dim"},
                  {"hidden_act", "activation_function"}},
      .fixed = {{"add_cross_attention", "false"}},
      .resolve = resolve_biases_of_xglm,
      .centers_norm = true,
      .position_offset = 2,
      .positions = Positions::kSinusoidal,
      .model_tensors =
          joined({model_rows_named("embed_tokens.weight", "layer_norm.weight", "lm_head.weight"),
                  {{Role::kFinalNormBias, "layer_norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({{{Role::kInputNorm, "self_attn_layer_norm.weight", {Dim::kHidden}},
                                {Role::kInputNormBias, "self_attn_layer_norm.bias", {Dim::kHidden}},
                                {Role::kMlpNorm, "final_layer_norm.weight", {Dim::kHidden}},
                                {Role::kMlpNormBias, "final_layer_norm.bias", {Dim::kHidden}}},
                               attention_rows_named(kOutProjAttention),
                               plain_mlp_rows("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")}),
      .ignored_suffixes = {"embed_positions.weights"},
  };
}

}  // namespace kvcal
