#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows gemma4_feed_forward_rows() {
  const Condition moe = when(&LayerConfig::is_moe);
  return {
      {Role::kGate, "mlp.gate_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kUp, "mlp.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
      {Role::kDown, "mlp.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}},
      {Role::kMlpBesideNorm, "post_feedforward_layernorm_1.weight", {Dim::kHidden}, {moe}},
      {Role::kExpertNorm, "pre_feedforward_layernorm_2.weight", {Dim::kHidden}, {moe}},
      {Role::kExpertOutputNorm, "post_feedforward_layernorm_2.weight", {Dim::kHidden}, {moe}},
      {Role::kRouterNorm, "router.scale", {Dim::kHidden}, {moe}},
      {Role::kRouter, "router.proj.weight", {Dim::kExperts, Dim::kHidden}, {moe}},
      {Role::kExpertScale, "router.per_expert_scale", {Dim::kExperts}, {moe}},
      {Role::kExpertGateUp,
       "experts.gate_up_proj",
       {Dim::kExpertGateUpWidth, Dim::kHidden},
       {moe},
       Layout::kOutIn,
       Dim::kExperts,
       {{Role::kExpertGate, "experts.{}.gate_proj.weight"},
        {Role::kExpertUp, "experts.{}.up_proj.weight"}}},
      {Role::kExpertDown,
       "experts.down_proj",
       {Dim::kHidden, Dim::kExpertIntermediate},
       {moe},
       Layout::kOutIn,
       Dim::kExperts,
       {{Role::kExpertDown, "experts.{}.down_proj.weight"}}},
  };
}

void resolve_gemma4(const Json& json, ModelConfig& config) {
  const auto attends_ahead = optional_string(json, "use_bidirectional_attention");
  if (attends_ahead.value_or("vision") != "vision")
    fail("key 'use_bidirectional_attention' is '", *attends_ahead, "', which is not supported for ",
         config.architecture->name, "; supported are null and 'vision'");
  // Where a type is missing, transformers has no rope.
  if (config.ropes.size() != 2)
    fail("key 'rope_parameters' gives ", config.ropes.size(),
         " of full_attention and sliding_attention, expected both");
  config.softmax_scale = 1.0f;
  config.norm_topk_prob = true;
}

}  // namespace

// Source: transformers 5.23, models/gemma4.
Architecture gemma4_architecture() {
  return {
      .name = "gemma4",
      .model_types = {"gemma4_text"},
      .attention_class = "Gemma4TextAttention",
      .description = "Gemma 4, also the text part of multimodal checkpoints",
      .defaults = R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
                      "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
                      "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
                      "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh",
                      "sliding_window": 512, "sliding_window_pattern": 6,
                      "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
                      "rope_parameters": {
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                           "partial_rotary_factor": 0.25}}})",
      .aliases = {{"hidden_act", "hidden_activation"}, {"num_experts_per_tok", "top_k_experts"}},
      .switches = attention_bias_switches(),
      .numbers = {{"final_logit_softcapping", &ModelConfig::logits_softcap}},
      .known_keys = {"use_bidirectional_attention", "use_double_wide_mlp"},
      .resolve = resolve_gemma4,
      .scales_embedding = true,
      .has_global_heads = true,
      .shares_caches = true,
      .norms_values = true,
      .ends_with_full_attention = true,
      .has_mlp_beside_experts = true,
      .expert_layers = ExpertLayers::kWhereEnabled,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = joined({model_rows(), layer_input_model_rows()}),
      .layer_tensors = joined({sandwich_norm_rows(),
                               shared_cache_attention_rows(),
                               gemma4_feed_forward_rows(),
                               layer_input_rows(),
                               {{Role::kLayerScalar, "layer_scalar", {Dim::kOne}}}}),
      .ignored_without_cache = {"self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                "self_attn.k_norm.weight"},
  };
}

}  // namespace kvcal
