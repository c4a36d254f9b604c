#include <cmath>

#include "family/tensor_tables.h"

namespace kvcal {

namespace {

void resolve_biases(const Json& config, ModelConfig& resolved) {
  resolved.attention_bias = resolved.output_bias = resolved.mlp_bias = true;
  if (optional_bool(config, "scale_embedding").value_or(true))
    resolved.embedding_multiplier = std::sqrt(static_cast<float>(resolved.hidden_size));
}

}  // namespace

// Source: transformers, models/biogpt.
Architecture biogpt_architecture() {
  return {
      .name = "biogpt",
      .model_types = {"biogpt"},
      .attention_class = "BioGptAttention",
      .description = "BioGPT",
      .defaults = R"({"max_position_embeddings": 1024, "hidden_act": "gelu",
                      "layer_norm_eps": 1e-12, "scale_embedding": true,
                      "tie_word_embeddings": true})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .resolve = resolve_biases,
      .centers_norm = true,
      .position_offset = 2,
      .positions = Positions::kLearned,
      .prefixes = {{"biogpt."}},
      .model_tensors = joined(
          {model_rows_named("embed_tokens.weight", "layer_norm.weight", "output_projection.weight"),
           {{Role::kPositionEmbedding, "embed_positions.weight", {Dim::kPositions, Dim::kHidden}},
            {Role::kFinalNormBias, "layer_norm.bias", {Dim::kHidden}}}}),
      .layer_tensors = joined({{{Role::kInputNorm, "self_attn_layer_norm.weight", {Dim::kHidden}},
                                {Role::kInputNormBias, "self_attn_layer_norm.bias", {Dim::kHidden}},
                                {Role::kMlpNorm, "final_layer_norm.weight", {Dim::kHidden}},
                                {Role::kMlpNormBias, "final_layer_norm.bias", {Dim::kHidden}}},
                               attention_rows_named(kOutProjAttention),
                               plain_mlp_rows("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")}),
  };
}

}  // namespace kvcal
