#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// A name in published checkpoints, and another that transformers' save_pretrained writes.
TensorRows renamed(Role role, std::string_view published, std::string_view saved) {
  return {
      {role, published, {Dim::kHidden}, {unless(&ModelConfig::has_saved_names)}},
      {role, saved, {Dim::kHidden}, {when(&ModelConfig::has_saved_names)}},
  };
}

TensorRows attention_layer_rows() {
  return joined({renamed(Role::kAttentionOutputNorm, "post_attention_layernorm.weight",
                         "feedforward_layer_norm.weight"),
                 {{Role::kMlpOutputNorm, "post_feedforward_layernorm.weight", {Dim::kHidden}}},
                 attention_rows(),
                 whole_norm_rows()});
}

TensorRows delta_layer_rows() {
  const auto convolution = [](Role role, std::string_view name, Dim width) {
    return TensorRow{role, name, {width, Dim::kOne, Dim::kMixerKernel}};
  };
  return {
      {Role::kInputNorm, "attention_layer_norm.weight", {Dim::kHidden}},
      {Role::kMlpNorm, "feedforward_layer_norm.weight", {Dim::kHidden}},
      {Role::kMixerQuery, "linear_attn.q_proj.weight", {Dim::kMixerKeyWidth, Dim::kHidden}},
      {Role::kMixerKey, "linear_attn.k_proj.weight", {Dim::kMixerKeyWidth, Dim::kHidden}},
      {Role::kMixerValue, "linear_attn.v_proj.weight", {Dim::kMixerInner, Dim::kHidden}},
      {Role::kMixerZ, "linear_attn.g_proj.weight", {Dim::kMixerInner, Dim::kHidden}},
      {Role::kMixerBeta, "linear_attn.b_proj.weight", {Dim::kMixerHeads, Dim::kHidden}},
      {Role::kMixerAlpha, "linear_attn.a_proj.weight", {Dim::kMixerHeads, Dim::kHidden}},
      convolution(Role::kMixerConvQuery, "linear_attn.q_conv1d.weight", Dim::kMixerConvKeyWidth),
      convolution(Role::kMixerConvKey, "linear_attn.k_conv1d.weight", Dim::kMixerConvKeyWidth),
      convolution(Role::kMixerConvValue, "linear_attn.v_conv1d.weight", Dim::kMixerConvValueWidth),
      {Role::kMixerStepBias, "linear_attn.dt_bias", {Dim::kMixerHeads}},
      {Role::kMixerDecay, "linear_attn.A_log", {Dim::kMixerHeads}},
      {Role::kMixerNorm, "linear_attn.o_norm.weight", {Dim::kMixerHeadDim}},
      {Role::kMixerOut, "linear_attn.o_proj.weight", {Dim::kHidden, Dim::kMixerInner}},
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

}  // namespace

// OLMo 3's attention, with norms behind, beside gated delta nets, with norms before. Source:
// transformers, models/olmo_hybrid.
Architecture olmo_hybrid_architecture() {
  return {
      .name = "olmo_hybrid",
      .model_types = {"olmo_hybrid"},
      .attention_class = "OlmoHybridAttention",
      .description = "OLMo Hybrid",
      .defaults = R"({"linear_conv_kernel_dim": 4, "full_attention_interval": 4})",
      .switches = attention_bias_switches(),
      .known_keys = {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
                     "linear_dt_init_floor", "linear_allow_neg_eigval"},
      .resolve = resolve_mixers,
      .recurrence = Mixer::kDeltaNet,
      .qk_norm = QkNorm::kWhole,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({with(when(&LayerConfig::has_attention), attention_layer_rows()),
                  with(when(&LayerConfig::has_recurrence), delta_layer_rows()), mlp_rows()}),
  };
}

}  // namespace kvcal
