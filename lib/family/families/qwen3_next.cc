#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows delta_net_rows() {
  return {
      {Role::kMixerIn, "linear_attn.in_proj_qkvz.weight", {Dim::kMixerInWidth, Dim::kHidden}},
      {Role::kMixerGates, "linear_attn.in_proj_ba.weight", {Dim::kMixerGatesWidth, Dim::kHidden}},
      {Role::kMixerConv,
       "linear_attn.conv1d.weight",
       {Dim::kMixerChannels, Dim::kOne, Dim::kMixerKernel}},
      {Role::kMixerStepBias, "linear_attn.dt_bias", {Dim::kMixerHeads}},
      {Role::kMixerDecay, "linear_attn.A_log", {Dim::kMixerHeads}},
      {Role::kMixerNorm, "linear_attn.norm.weight", {Dim::kMixerHeadDim}},
      {Role::kMixerOut, "linear_attn.out_proj.weight", {Dim::kHidden, Dim::kMixerInner}},
  };
}

}  // namespace

// Gated delta nets, every fourth layer gated attention. Source: transformers, models/qwen3_next.
Architecture qwen3_next_architecture() {
  return {
      .name = "qwen3_next",
      .model_types = {"qwen3_next"},
      .attention_class = "Qwen3NextAttention",
      .description = "Qwen3-Next",
      .defaults =
          R"({"decoder_sparse_step": 1, "head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
                      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                      "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                      "linear_num_value_heads": 32, "num_experts": 512,
                      "num_experts_per_tok": 10, "moe_intermediate_size": 512,
                      "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
                      "full_attention_interval": 4})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .fixed = {{"attention_bias", "false"}},
      .norm_adds_one = true,
      .has_query_gate = true,
      .draft = DraftLayer::kMtp,
      .draft_scales = "attn",
      .recurrence = Mixer::kDeltaNet,
      .expert_layers = ExpertLayers::kEveryStep,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), gated_attention_rows()),
                  with(when(&LayerConfig::has_recurrence), delta_net_rows()), mlp_rows(),
                  expert_rows(kProjExperts), gated_shared_expert_rows()}),
      .ignored_prefixes = {"mtp."},
  };
}

}  // namespace kvcal
