#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows own_head_norm_rows() {
  const Condition normed = when(&ModelConfig::has_qk_norm);
  return {
      {Role::kQueryNorm, "self_attn.q_norm.weight", {Dim::kHeads, Dim::kHeadDim}, {normed}},
      {Role::kKeyNorm, "self_attn.k_norm.weight", {Dim::kKvHeads, Dim::kHeadDim}, {normed}},
  };
}

}  // namespace

// Source: transformers, models/cohere.
Architecture cohere_architecture() {
  return {
      .name = "cohere",
      .model_types = {"cohere"},
      .attention_class = "CohereAttention",
      .description = "Command-R, Command-R+, Aya",
      .defaults = R"({"rope_theta": 500000, "logit_scale": 0.0625, "layer_norm_eps": 1e-5,
                      "tie_word_embeddings": true, "max_position_embeddings": 8192})",
      .aliases = {{"rms_norm_eps", "layer_norm_eps"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"use_qk_norm", &ModelConfig::has_qk_norm}},
      .numbers = {{"logit_scale", &ModelConfig::logits_multiplier}},
      .resolve = share_parallel_norm,
      .centers_norm = true,
      .rope_is_interleaved = true,
      .qk_norm = QkNorm::kPerHeadOwnWeight,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), attention_rows(), own_head_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
