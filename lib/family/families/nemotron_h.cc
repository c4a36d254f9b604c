#include "family/tensor_tables.h"

namespace kvcal {
namespace {

TensorRows nemotron_h_layer_rows() {
  const Condition attends = when(&LayerConfig::has_attention), mlp = when(&LayerConfig::has_mlp);
  const Condition moe = when(&LayerConfig::is_moe), biased = when(&ModelConfig::mlp_bias);
  const Condition mixes = when(&LayerConfig::has_mixer), fed = unless(&LayerConfig::has_mixer);
  const auto expert = [&](Role role, std::string_view name, std::vector<Dim> shape) {
    return TensorRow{role, name, std::move(shape), {moe}, Layout::kOutIn, Dim::kExperts};
  };
  return joined({
      {{Role::kInputNorm, "norm.weight", {Dim::kHidden}, {mixes}},
       {Role::kMlpNorm, "norm.weight", {Dim::kHidden}, {fed}},
       {Role::kQuery, "mixer.q_proj.weight", {Dim::kQueryWidth, Dim::kHidden}, {attends}},
       {Role::kKey, "mixer.k_proj.weight", {Dim::kKvWidth, Dim::kHidden}, {attends}},
       {Role::kValue, "mixer.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}, {attends}},
       {Role::kOutput, "mixer.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}, {attends}}},
      mamba2_rows({.in = "mixer.in_proj.weight",
                   .in_bias = "mixer.in_proj.bias",
                   .conv = "mixer.conv1d.weight",
                   .conv_bias = "mixer.conv1d.bias",
                   .step_bias = "mixer.dt_bias",
                   .decay = "mixer.A_log",
                   .skip = "mixer.D",
                   .norm = "mixer.norm.weight",
                   .out = "mixer.out_proj.weight",
                   .out_bias = "mixer.out_proj.bias"}),
      {{Role::kUp, "mixer.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {mlp}},
       {Role::kUpBias, "mixer.up_proj.bias", {Dim::kIntermediate}, {mlp, biased}},
       {Role::kDown, "mixer.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}, {mlp}},
       {Role::kDownBias, "mixer.down_proj.bias", {Dim::kHidden}, {mlp, biased}},
       {Role::kRouter, "mixer.gate.weight", {Dim::kExperts, Dim::kHidden}, {moe}},
       {Role::kRouterCorrection, "mixer.gate.e_score_correction_bias", {Dim::kExperts}, {moe}},
       expert(Role::kExpertUp, "mixer.experts.{}.up_proj.weight",
              {Dim::kExpertIntermediate, Dim::kHidden}),
       expert(Role::kExpertDown, "mixer.experts.{}.down_proj.weight",
              {Dim::kHidden, Dim::kExpertIntermediate}),
       {Role::kSharedUp,
        "mixer.shared_experts.up_proj.weight",
        {Dim::kSharedIntermediate, Dim::kHidden},
        {moe}},
       {Role::kSharedDown,
        "mixer.shared_experts.down_proj.weight",
        {Dim::kHidden, Dim::kSharedIntermediate},
        {moe}}},
  });
}

}  // namespace

// Mamba 2, attention, MLP or experts, one a layer. Source: transformers, models/nemotron_h.
Architecture nemotron_h_architecture() {
  return {
      .name = "nemotron_h",
      .model_types = {"nemotron_h"},
      .attention_class = "NemotronHAttention",
      .description = "Nemotron-H, Nemotron Nano 2 and 3",
      .defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "mlp_hidden_act": "relu2",
                      "layer_norm_epsilon": 1e-5, "mamba_num_heads": 128, "mamba_head_dim": 64,
                      "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
                      "use_conv_bias": true, "n_routed_experts": 8, "num_experts_per_tok": 2,
                      "moe_intermediate_size": 7688, "n_group": 1, "topk_group": 1,
                      "moe_shared_expert_intermediate_size": 7688, "norm_topk_prob": true})",
      .aliases = {{"head_dim", "attention_head_dim"},
                  {"rms_norm_eps", "layer_norm_epsilon"},
                  {"hidden_act", "mlp_hidden_act"},
                  {"mamba_n_groups", "n_groups"},
                  {"mamba_d_state", "ssm_state_size"},
                  {"mamba_d_conv", "conv_kernel"},
                  {"num_experts", "n_routed_experts"},
                  {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"}},
      .switches = {{"mlp_bias", &ModelConfig::mlp_bias},
                   {"use_bias", &ModelConfig::mixer_bias},
                   {"use_bias", &ModelConfig::mixer_output_bias},
                   {"use_conv_bias", &ModelConfig::has_conv_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"moe_latent_size", "null"}, {"mamba_hidden_act", "\"silu\""}},
      .known_keys = {"attention_bias", "mamba_proj_bias", "expand", "chunk_size", "norm_eps",
                     "rope_theta", "partial_rotary_factor", "n_shared_experts"},
      .recurrence = Mixer::kMamba2,
      .has_single_blocks = true,
      .expert_layers = ExpertLayers::kAll,
      .positions = Positions::kNone,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .prefixes = {{"backbone."}},
      .attention_module = "mixer",
      .model_tensors = model_rows_named("embeddings.weight", "norm_f.weight", "lm_head.weight"),
      .layer_tensors = nemotron_h_layer_rows(),
      .ignored_prefixes = {"mtp."},
  };
}

}  // namespace kvcal
