#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows mamba_rows() {
  return with(
      when(&LayerConfig::has_recurrence),
      {
          {Role::kMixerIn, "mamba.in_proj.weight", {Dim::kMixerInWidth, Dim::kHidden}},
          {Role::kMixerConv,
           "mamba.conv1d.weight",
           {Dim::kMixerChannels, Dim::kOne, Dim::kMixerKernel}},
          {Role::kMixerConvBias,
           "mamba.conv1d.bias",
           {Dim::kMixerChannels},
           {when(&ModelConfig::has_conv_bias)}},
          {Role::kMixerStates, "mamba.x_proj.weight", {Dim::kMixerStatesWidth, Dim::kMixerInner}},
          {Role::kMixerStep, "mamba.dt_proj.weight", {Dim::kMixerInner, Dim::kMixerStepRank}},
          {Role::kMixerStepBias, "mamba.dt_proj.bias", {Dim::kMixerInner}},
          {Role::kMixerStepNorm, "mamba.dt_layernorm.weight", {Dim::kMixerStepRank}},
          {Role::kMixerBNorm, "mamba.b_layernorm.weight", {Dim::kMixerStateDim}},
          {Role::kMixerCNorm, "mamba.c_layernorm.weight", {Dim::kMixerStateDim}},
          {Role::kMixerDecay, "mamba.A_log", {Dim::kMixerInner, Dim::kMixerStateDim}},
          {Role::kMixerSkip, "mamba.D", {Dim::kMixerInner}},
          {Role::kMixerOut, "mamba.out_proj.weight", {Dim::kHidden, Dim::kMixerInner}},
      });
}

TensorRows feed_forward_rows() {
  return joined({
      {{Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
       {Role::kMlpNorm, "pre_ff_layernorm.weight", {Dim::kHidden}}},
      with(unless(&LayerConfig::is_moe),
           {{Role::kGate, "feed_forward.gate_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
            {Role::kUp, "feed_forward.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}},
            {Role::kDown, "feed_forward.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}}}),
      expert_rows({.router = "feed_forward.router.weight",
                   .gate = "feed_forward.experts.{}.gate_proj.weight",
                   .up = "feed_forward.experts.{}.up_proj.weight",
                   .down = "feed_forward.experts.{}.down_proj.weight"}),
  });
}

}  // namespace

// Mamba layers, every eighth attention without positions. Source: transformers, models/jamba.
Architecture jamba_architecture() {
  return {
      .name = "jamba",
      .model_types = {"jamba"},
      .attention_class = "JambaAttention",
      .description = "Jamba 1, 1.5, 1.6, Jamba Reasoning",
      .defaults = R"({"num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
                      "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
                      "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4,
                      "mamba_expand": 2, "mamba_conv_bias": true,
                      "max_position_embeddings": 262144})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"mamba_conv_bias", &ModelConfig::has_conv_bias}},
      .fixed = {{"mamba_proj_bias", "false"}},
      // A single expert means no experts.
      .known_keys = {"mamba_inner_layernorms"},
      .resolve =
          [](const Json&, ModelConfig& config) {
            for (LayerConfig& layer : config.layers)
              if (config.moe.num_experts == 1) layer.is_moe = false;
          },
      .recurrence = Mixer::kMamba,
      .expert_layers = ExpertLayers::kPeriod,
      .positions = Positions::kNone,
      .model_tensors =
          model_rows_named("embed_tokens.weight", "final_layernorm.weight", "lm_head.weight"),
      .layer_tensors = joined({with(when(&LayerConfig::has_attention), attention_rows()),
                               mamba_rows(), feed_forward_rows()}),
  };
}

}  // namespace kvcal
