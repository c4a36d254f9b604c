#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// Gemma's norms: before and after attention, before and after the MLP.
TensorRows sandwich_norm_rows() {
  return {
      {kInputNorm, "input_layernorm.weight"},
      {kAttentionOutputNorm, "post_attention_layernorm.weight"},
      {kMlpNorm, "pre_feedforward_layernorm.weight"},
      {kMlpOutputNorm, "post_feedforward_layernorm.weight"},
  };
}

/// Separate Q, K and V with norms of Q and K over each head: Q alone where the layer reads another
/// one's cache, and no V where V is K.
TensorRows shared_cache_attention_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  const Condition own = when(&LayerConfig::has_own_cache);
  const Condition valued = when(&LayerConfig::has_value_projection);
  return {
      {kQuery, "self_attn.q_proj.weight"},
      {kKey, "self_attn.k_proj.weight", {}, {own}},
      {kValue, "self_attn.v_proj.weight", {}, {own, valued}},
      {kQueryBias, "self_attn.q_proj.bias", {}, {biased}},
      {kKeyBias, "self_attn.k_proj.bias", {}, {biased, own}},
      {kValueBias, "self_attn.v_proj.bias", {}, {biased, own, valued}},
      {kOutput, "self_attn.o_proj.weight"},
      {kOutputBias, "self_attn.o_proj.bias", {}, {when(&ModelConfig::output_bias)}},
      {kQueryNorm, "self_attn.q_norm.weight"},
      {kKeyNorm, "self_attn.k_norm.weight", {}, {own}},
  };
}

/// Gemma's embeddings that layers read beside the residual stream: of the model, and of each layer.
TensorRows layer_input_model_rows() {
  const Condition fed = when(&ModelConfig::has_layer_inputs);
  return {{kLayerInputEmbedding, "embed_tokens_per_layer.weight", {}, {fed}},
          {.role = kLayerInputProjection,
           .name = "per_layer_model_projection.weight",
           .conditions = {fed},
           .is_run_by_layers = true},
          {kLayerInputNorm, "per_layer_projection_norm.weight", {}, {fed}}};
}

TensorRows layer_input_rows() {
  return with(when(&ModelConfig::has_layer_inputs),
              {{kLayerInputGate, "per_layer_input_gate.weight"},
               {kLayerInputOutput, "per_layer_projection.weight"},
               {kLayerInputOutputNorm, "post_per_layer_input_norm.weight"}});
}

TensorRows stream_model_rows() {
  return {{.role = kStreamProjection,
           .name = "altup_projections.{}.weight",
           .repeat = Dim::kFurtherStreams,
           .is_run_by_layers = true},
          {.role = kStreamOutput,
           .name = "altup_unembed_projections.{}.weight",
           .repeat = Dim::kFurtherStreams,
           .is_run_by_last_layer = true}};
}

TensorRows stream_rows() {
  return {
      {kStreamRouter, "altup.modality_router.weight"},
      {kStreamRouterNorm, "altup.router_norm.weight"},
      {kStreamPrediction, "altup.prediction_coefs.weight"},
      {kStreamCorrection, "altup.correction_coefs.weight"},
      {kStreamScale, "altup.correct_output_scale"},
  };
}

TensorRows laurel_rows() {
  return {
      {kLaurelDown, "laurel.linear_left.weight"},
      {kLaurelUp, "laurel.linear_right.weight"},
      {kLaurelNorm, "laurel.post_laurel_norm.weight"},
  };
}

void resolve_gemma3n(const Json&, ModelConfig& config) {
  config.softmax_scale = 1.0f;
}

TensorRows gemma4_feed_forward_rows() {
  const Condition moe = when(&LayerConfig::is_moe);
  return {
      {kGate, "mlp.gate_proj.weight"},
      {kUp, "mlp.up_proj.weight"},
      {kDown, "mlp.down_proj.weight"},
      {kMlpBesideNorm, "post_feedforward_layernorm_1.weight", {}, {moe}},
      {kExpertNorm, "pre_feedforward_layernorm_2.weight", {}, {moe}},
      {kExpertOutputNorm, "post_feedforward_layernorm_2.weight", {}, {moe}},
      {kRouterNorm, "router.scale", {}, {moe}},
      {kRouter, "router.proj.weight", {}, {moe}},
      {kExpertScale, "router.per_expert_scale", {}, {moe}},
      {kExpertGateUp,
       "experts.gate_up_proj",
       {},
       {moe},
       Layout::kOutIn,
       Dim::kExperts,
       {{kExpertGate, "experts.{}.gate_proj.weight"}, {kExpertUp, "experts.{}.up_proj.weight"}}},
      {kExpertDown,
       "experts.down_proj",
       {},
       {moe},
       Layout::kOutIn,
       Dim::kExperts,
       {{kExpertDown, "experts.{}.down_proj.weight"}}},
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

constexpr FamilyRow kRows[] = {
    {"gemma", "", "GemmaAttention", "Gemma 1, CodeGemma",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 256, "num_attention_heads": 16, "num_key_value_heads": 16,
         "max_position_embeddings": 8192, "tie_word_embeddings": true,
         "hidden_act": "gelu_pytorch_tanh"})";
       family.known_keys = {"hidden_activation"};  // of earlier versions of transformers
       family.switches = attention_bias_switches();
       family.fixed = {{"use_bidirectional_attention", "false"}};
       // The first checkpoints have "gelu" but use its approximation.
       family.resolve = [](const Json&, ModelConfig& config) {
         if (config.activation == Activation::kGelu) config.activation = Activation::kGeluTanh;
       };
       family.norm_adds_one = true;
       family.scales_embedding = true;
     }},
    {"gemma2", "gemma", "Gemma2Attention", "Gemma 2",
     [](Architecture& family) {
       family.defaults.merge(R"({"num_attention_heads": 8, "num_key_value_heads": 4,
         "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 2,
         "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})");
       family.known_keys = {};
       family.aliases = {{"hidden_act", "hidden_activation"}};
       family.numbers = {{"query_pre_attn_scalar", &ModelConfig::softmax_scale,
                          NumberKey::Reading::kInverseSquareRoot},
                         {"attn_logit_softcapping", &ModelConfig::attention_softcap},
                         {"final_logit_softcapping", &ModelConfig::logits_softcap}};
       family.resolve = nullptr;
       family.sliding_window = SlidingWindow::kPattern;
       family.layer_tensors = joined({sandwich_norm_rows(), attention_rows(), mlp_rows()});
     }},
    // Gemma 2 without norms of outputs.
    {"vaultgemma", "gemma2", "VaultGemmaAttention", "VaultGemma",
     [](Architecture& family) {
       family.layer_tensors = joined({{{kInputNorm, "input_layernorm.weight"},
                                       {kMlpNorm, "pre_feedforward_layernorm.weight"}},
                                      attention_rows(),
                                      mlp_rows()});
     }},
    {"gemma3", "gemma2", "Gemma3Attention", "Gemma 3, also the text part of multimodal checkpoints",
     [](Architecture& family) {
       family.model_types = {"gemma3_text"};
       family.defaults = R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 256, "max_position_embeddings": 131072, "tie_word_embeddings": true,
         "hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 4096,
         "sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 10000.0})";
       family.numbers = {{"query_pre_attn_scalar", &ModelConfig::softmax_scale,
                          NumberKey::Reading::kInverseSquareRoot},
                         {"final_logit_softcapping", &ModelConfig::logits_softcap}};
       family.fixed = {{"use_bidirectional_attention", "false"},
                       {"attn_logit_softcapping", "null"}};
       family.local_rope = LocalRope::kOwnTheta;
       family.layer_tensors =
           joined({sandwich_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()});
     }},
    // Source: transformers 5.23, models/gemma3n.
    {"gemma3n", "gemma2", "Gemma3nTextAttention",
     "Gemma 3n, also the text part of multimodal checkpoints",
     [](Architecture& family) {
       family.model_types = {"gemma3n_text"};
       family.defaults = R"({"vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384,
         "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
         "head_dim": 256, "max_position_embeddings": 32768, "tie_word_embeddings": true,
         "hidden_act": "gelu_pytorch_tanh", "sliding_window": 512, "sliding_window_pattern": 5,
         "final_logit_softcapping": 30.0, "num_kv_shared_layers": 15,
         "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
         "altup_num_inputs": 4, "altup_active_idx": 0, "laurel_rank": 64, "rope_theta": 1e6,
         "rope_local_base_freq": 10000.0})";
       add(family.switches, {{"altup_correct_scale", &ModelConfig::scales_active_stream}});
       family.numbers = {{"final_logit_softcapping", &ModelConfig::logits_softcap}};
       // The clip and the rate are those of training.
       family.known_keys = {"altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar"};
       family.resolve = resolve_gemma3n;
       family.norm_adds_one = false;
       family.shares_caches = true;
       family.has_mlp_by_layer = true;
       family.replaces_layer_inputs = true;
       family.norms_values = true;
       family.local_rope = LocalRope::kOwnTheta;
       family.model_tensors = joined({model_rows(), layer_input_model_rows(), stream_model_rows()});
       family.layer_tensors =
           joined({sandwich_norm_rows(), stream_rows(), shared_cache_attention_rows(),
                   laurel_rows(), mlp_rows(), layer_input_rows()});
       family.ignored_without_cache = {"self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                       "self_attn.k_norm.weight"};
     }},
    // Source: transformers 5.23, models/gemma4.
    {"gemma4", "gemma3n", "Gemma4TextAttention",
     "Gemma 4, also the text part of multimodal checkpoints",
     [](Architecture& family) {
       family.model_types = {"gemma4_text"};
       family.defaults = R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
         "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh", "sliding_window": 512,
         "sliding_window_pattern": 6, "hidden_size_per_layer_input": 256,
         "vocab_size_per_layer_input": 262144,
         "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
         "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
         "partial_rotary_factor": 0.25}}})";
       add(family.aliases, {{"num_experts_per_tok", "top_k_experts"}});
       family.switches = attention_bias_switches();
       family.fixed = {};
       family.known_keys = {"use_bidirectional_attention", "use_double_wide_mlp"};
       family.resolve = resolve_gemma4;
       family.has_global_heads = true;
       family.has_mlp_by_layer = false;
       family.replaces_layer_inputs = false;
       family.ends_with_full_attention = true;
       family.has_mlp_beside_experts = true;
       family.expert_layers = ExpertLayers::kWhereEnabled;
       family.local_rope = LocalRope::kSame;
       family.model_tensors = joined({model_rows(), layer_input_model_rows()});
       family.layer_tensors = joined({sandwich_norm_rows(),
                                      shared_cache_attention_rows(),
                                      gemma4_feed_forward_rows(),
                                      layer_input_rows(),
                                      {{kLayerScalar, "layer_scalar"}}});
     }},
    // Gemma 4 without layers' own inputs and without experts. Source: transformers 5.23,
    // models/gemma4_unified.
    {"gemma4_unified", "gemma4", "Gemma4UnifiedTextAttention",
     "Gemma 4 12B, also the text part of multimodal checkpoints",
     [](Architecture& family) {
       family.model_types = {"gemma4_unified_text"};
       family.defaults.merge(R"({"hidden_size_per_layer_input": null,
         "vocab_size_per_layer_input": null, "max_position_embeddings": 262144,
         "sliding_window": 1024})");
       family.has_mlp_beside_experts = false;
       family.expert_layers = ExpertLayers::kNone;
       family.model_tensors = model_rows();
       family.layer_tensors = joined({sandwich_norm_rows(),
                                      shared_cache_attention_rows(),
                                      mlp_rows(),
                                      {{kLayerScalar, "layer_scalar"}}});
     }},
};

}  // namespace

Lineage gemma_lineage() {
  return kRows;
}

}  // namespace kvcal
