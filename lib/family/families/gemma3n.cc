#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows stream_model_rows() {
  return {{.role = Role::kStreamProjection,
           .name = "altup_projections.{}.weight",
           .shape = {Dim::kHidden, Dim::kHidden},
           .repeat = Dim::kFurtherStreams,
           .is_run_by_layers = true},
          {.role = Role::kStreamOutput,
           .name = "altup_unembed_projections.{}.weight",
           .shape = {Dim::kHidden, Dim::kHidden},
           .repeat = Dim::kFurtherStreams,
           .is_run_by_last_layer = true}};
}

TensorRows stream_rows() {
  return {
      {Role::kStreamRouter, "altup.modality_router.weight", {Dim::kStreams, Dim::kHidden}},
      {Role::kStreamRouterNorm, "altup.router_norm.weight", {Dim::kHidden}},
      {Role::kStreamPrediction,
       "altup.prediction_coefs.weight",
       {Dim::kStreamPairs, Dim::kStreams}},
      {Role::kStreamCorrection, "altup.correction_coefs.weight", {Dim::kStreams, Dim::kStreams}},
      {Role::kStreamScale, "altup.correct_output_scale", {Dim::kHidden}},
  };
}

TensorRows laurel_rows() {
  return {
      {Role::kLaurelDown, "laurel.linear_left.weight", {Dim::kLaurelRank, Dim::kHidden}},
      {Role::kLaurelUp, "laurel.linear_right.weight", {Dim::kHidden, Dim::kLaurelRank}},
      {Role::kLaurelNorm, "laurel.post_laurel_norm.weight", {Dim::kHidden}},
  };
}

void resolve_gemma3n(const Json&, ModelConfig& config) {
  config.softmax_scale = 1.0f;
}

}  // namespace

// Source: transformers 5.23, models/gemma3n.
Architecture gemma3n_architecture() {
  return {
      .name = "gemma3n",
      .model_types = {"gemma3n_text"},
      .attention_class = "Gemma3nTextAttention",
      .description = "Gemma 3n, also the text part of multimodal checkpoints",
      .defaults = R"({"vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384,
                      "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
                      "head_dim": 256, "max_position_embeddings": 32768,
                      "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh",
                      "sliding_window": 512, "sliding_window_pattern": 5,
                      "final_logit_softcapping": 30.0, "num_kv_shared_layers": 15,
                      "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
                      "altup_num_inputs": 4, "altup_active_idx": 0, "laurel_rank": 64,
                      "rope_theta": 1e6, "rope_local_base_freq": 10000.0})",
      .aliases = {{"hidden_act", "hidden_activation"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"altup_correct_scale", &ModelConfig::scales_active_stream}},
      .numbers = {{"final_logit_softcapping", &ModelConfig::logits_softcap}},
      // The clip and the rate are those of training.
      .known_keys = {"altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar"},
      .resolve = resolve_gemma3n,
      .scales_embedding = true,
      .shares_caches = true,
      .has_mlp_by_layer = true,
      .replaces_layer_inputs = true,
      .norms_values = true,
      .local_rope = LocalRope::kOwnTheta,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = joined({model_rows(), layer_input_model_rows(), stream_model_rows()}),
      .layer_tensors = joined({sandwich_norm_rows(), stream_rows(), shared_cache_attention_rows(),
                               laurel_rows(), mlp_rows(), layer_input_rows()}),
      .ignored_without_cache = {"self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                "self_attn.k_norm.weight"},
  };
}

}  // namespace kvcal
