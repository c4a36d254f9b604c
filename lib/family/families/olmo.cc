#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// A name in published checkpoints, and another that transformers' save_pretrained writes.
TensorRows renamed(Role role, std::string_view published, std::string_view saved) {
  return {
      {role, published, {Dim::kHidden}, {unless(&ModelConfig::has_saved_names)}},
      {role, saved, {Dim::kHidden}, {when(&ModelConfig::has_saved_names)}},
  };
}

TensorRows attention_layer_rows() {
  return joined({renamed(kAttentionOutputNorm, "post_attention_layernorm.weight",
                         "feedforward_layer_norm.weight"),
                 {{kMlpOutputNorm, "post_feedforward_layernorm.weight"}},
                 attention_rows(),
                 whole_norm_rows()});
}

TensorRows delta_layer_rows() {
  const auto convolution = [](Role role, std::string_view name, Dim width) {
    return TensorRow{role, name, {width, Dim::kOne, Dim::kMixerKernel}};
  };
  return {
      {kInputNorm, "attention_layer_norm.weight"},
      {kMlpNorm, "feedforward_layer_norm.weight"},
      {kMixerQuery, "linear_attn.q_proj.weight"},
      {kMixerKey, "linear_attn.k_proj.weight"},
      {kMixerValue, "linear_attn.v_proj.weight"},
      {kMixerZ, "linear_attn.g_proj.weight"},
      {kMixerBeta, "linear_attn.b_proj.weight"},
      {kMixerAlpha, "linear_attn.a_proj.weight"},
      convolution(kMixerConvQuery, "linear_attn.q_conv1d.weight", Dim::kMixerConvKeyWidth),
      convolution(kMixerConvKey, "linear_attn.k_conv1d.weight", Dim::kMixerConvKeyWidth),
      convolution(kMixerConvValue, "linear_attn.v_conv1d.weight", Dim::kMixerConvValueWidth),
      {kMixerStepBias, "linear_attn.dt_bias"},
      {kMixerDecay, "linear_attn.A_log"},
      {kMixerNorm, "linear_attn.o_norm.weight", {Dim::kMixerHeadDim}},
      {kMixerOut, "linear_attn.o_proj.weight"},
  };
}

void resolve_mixers(const Json& config, ModelConfig& resolved) {
  const bool changes_sign = optional_bool(config, "linear_allow_neg_eigval").value_or(true);
  resolved.recurrent.beta_range = changes_sign ? 2.0f : 1.0f;
  resolved.recurrent.norm_eps = 1e-5f;
  // Published models have no positions, and say so with a theta that is null.
  const Json* rope = find_field(config, "rope_parameters");
  const bool has_none =
      rope && rope->is_object() && rope->contains("rope_theta") && rope->at("rope_theta").is_null();
  for (LayerConfig& layer : resolved.layers)
    if (has_none) layer.rope = kNoRope;
}

constexpr FamilyRow kRows[] = {
    // Llama with LayerNorms that have no weights.
    {"olmo", "", "OlmoAttention", "OLMo 1",
     [](Architecture& family) {
       family.defaults = R"({"rms_norm_eps": 1e-5})";
       family.switches = attention_bias_switches();
       family.numbers = {{"clip_qkv", &ModelConfig::qkv_limit}};
       family.centers_norm = true;
       family.plain_norms = {kInputNorm, kMlpNorm, kFinalNorm};
       family.model_tensors = {
           {kEmbedding, "embed_tokens.weight"},
           {kLmHead, "lm_head.weight", {}, {unless(&ModelConfig::tie_word_embeddings)}}};
       family.layer_tensors = joined({attention_rows(), mlp_rows()});
     }},
    {"olmo2", "", "Olmo2Attention", "OLMo 2",
     [](Architecture& family) {
       family.defaults = R"({"rms_norm_eps": 1e-5})";
       family.switches = attention_bias_switches();
       family.qk_norm = QkNorm::kWhole;
       family.layer_tensors =
           joined({post_norm_rows(), attention_rows(), whole_norm_rows(), mlp_rows()});
     }},
    // OLMo 2 with windows.
    {"olmo3", "olmo2", "Olmo3Attention", "OLMo 3",
     [](Architecture& family) {
       family.defaults.merge(R"({"sliding_window": 4096, "sliding_window_pattern": 4,
         "rope_theta": 500000})");
       family.local_rope = LocalRope::kUnscaled;
       family.sliding_window = SlidingWindow::kPattern;
     }},
    {"olmoe", "olmo2", "OlmoeAttention", "OLMoE",
     [](Architecture& family) {
       family.defaults.merge(R"({"num_experts_per_tok": 8, "num_experts": 64})");
       family.aliases = {{"num_experts", "num_local_experts"}};
       add(family.switches, {{"norm_topk_prob", &ModelConfig::norm_topk_prob}});
       family.numbers = {{"clip_qkv", &ModelConfig::qkv_limit}};
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), whole_norm_rows(), expert_rows()});
     }},
    // OLMo 2's attention and norms, OLMoE's experts.
    {"flex_olmo", "olmoe", "FlexOlmoAttention", "FlexOlmo",
     [](Architecture& family) {
       family.defaults = R"({"rope_theta": 500000, "num_experts_per_tok": 5, "num_experts": 7})";
       family.numbers = {};
       family.layer_tensors =
           joined({post_norm_rows(), attention_rows(), whole_norm_rows(), expert_rows()});
     }},
    // OLMo 3's attention, with norms behind, beside gated delta nets, with norms before.
    {"olmo_hybrid", "olmo2", "OlmoHybridAttention", "OLMo Hybrid",
     [](Architecture& family) {
       family.defaults = R"({"linear_conv_kernel_dim": 4, "full_attention_interval": 4})";
       family.fixed = {{"hidden_act", "\"silu\""}};  // also of the convolution
       family.known_keys = {"linear_a_log_min", "linear_a_log_max",     "linear_dt_min",
                            "linear_dt_max",    "linear_dt_init_floor", "linear_allow_neg_eigval"};
       family.resolve = resolve_mixers;
       family.recurrence = Mixer::kDeltaNet;
       family.layer_tensors =
           joined({with(when(&LayerConfig::has_attention), attention_layer_rows()),
                   with(when(&LayerConfig::has_recurrence), delta_layer_rows()), mlp_rows()});
     }},
};

}  // namespace

Lineage olmo_lineage() {
  return kRows;
}

}  // namespace kvcal
