#include "family/tensor_tables.h"

namespace kvcal {

namespace {

void check_width(const Json& config, ModelConfig& resolved) {
  const int64_t width = optional_int(config, "word_embed_proj_dim").value_or(resolved.hidden_size);
  if (width != resolved.hidden_size)
    fail("key 'word_embed_proj_dim' is ", width, ", which is not supported; supported is ",
         "hidden_size ", resolved.hidden_size);
}

}  // namespace

// Source: transformers, models/opt.
Architecture opt_architecture() {
  return {
      .name = "opt",
      .model_types = {"opt"},
      .attention_class = "OPTAttention",
      .description = "OPT, Galactica",
      .defaults = R"({"max_position_embeddings": 2048, "activation_function": "relu",
                      "rms_norm_eps": 1e-5, "enable_bias": true, "tie_word_embeddings": true})",
      .aliases = {{"intermediate_size", "ffn_dim"}, {"hidden_act", "activation_function"}},
      .switches = {{"enable_bias", &ModelConfig::attention_bias},
                   {"enable_bias", &ModelConfig::output_bias},
                   {"enable_bias", &ModelConfig::mlp_bias}},
      .fixed = {{"do_layer_norm_before", "true"},
                {"_remove_final_layer_norm", "false"},
                {"layer_norm_elementwise_affine", "true"}},
      .known_keys = {"word_embed_proj_dim"},
      .resolve = check_width,
      .centers_norm = true,
      .position_offset = 2,
      .positions = Positions::kLearned,
      .prefixes = {{"model.decoder."}, {"decoder."}},
      .model_tensors = joined(
          {model_rows_named("embed_tokens.weight", "final_layer_norm.weight", "lm_head.weight"),
           {{Role::kPositionEmbedding, "embed_positions.weight", {Dim::kPositions, Dim::kHidden}},
            {Role::kFinalNormBias, "final_layer_norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({{{Role::kInputNorm, "self_attn_layer_norm.weight", {Dim::kHidden}},
                                {Role::kInputNormBias, "self_attn_layer_norm.bias", {Dim::kHidden}},
                                {Role::kMlpNorm, "final_layer_norm.weight", {Dim::kHidden}},
                                {Role::kMlpNormBias, "final_layer_norm.bias", {Dim::kHidden}}},
                               attention_rows_named(kOutProjAttention),
                               plain_mlp_rows("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")}),
  };
}

}  // namespace kvcal
