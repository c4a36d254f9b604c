#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// LFM2's norms, attention or short convolutions, and MLP of layers without experts.
TensorRows short_convolution_rows() {
  return with(when(&LayerConfig::has_recurrence),
              {{kMixerIn, "conv.in_proj.weight"},
               {kMixerInBias, "conv.in_proj.bias", {}, {when(&ModelConfig::mixer_bias)}},
               {kMixerConv, "conv.conv.weight"},
               {kMixerConvBias, "conv.conv.bias", {}, {when(&ModelConfig::has_conv_bias)}},
               {kMixerOut, "conv.out_proj.weight"},
               {kMixerOutBias, "conv.out_proj.bias", {}, {when(&ModelConfig::mixer_output_bias)}}});
}

/// Norms before attention and the MLP, and the MLP.
TensorRows lfm_block_rows() {
  const Condition dense = unless(&LayerConfig::is_moe);
  return {
      {kInputNorm, "operator_norm.weight"},           {kMlpNorm, "ffn_norm.weight"},
      {kGate, "feed_forward.w1.weight", {}, {dense}}, {kUp, "feed_forward.w3.weight", {}, {dense}},
      {kDown, "feed_forward.w2.weight", {}, {dense}},
  };
}

TensorRows lfm2_rows() {
  const Condition attends = when(&LayerConfig::has_attention);
  return joined({lfm_block_rows(), with(attends, attention_rows_named(kOutProjAttention)),
                 with(attends, head_norm_rows("self_attn.q_layernorm.weight",
                                              "self_attn.k_layernorm.weight")),
                 short_convolution_rows()});
}

TensorRows lfm3_rows() {
  const Condition attends = when(&LayerConfig::has_attention);
  return joined({lfm_block_rows(),
                 with(when(&ModelConfig::has_output_norms),
                      {{kAttentionOutputNorm, "post_operator_norm.weight"},
                       {kMlpOutputNorm, "post_ffn_norm.weight"}}),
                 with(attends, attention_rows()),
                 with(attends, head_norm_rows()),
                 {{kQueryGate,
                   "self_attn.gate_proj.weight",
                   {Dim::kQueryGateWidth, Dim::kHidden},
                   {attends, when(&ModelConfig::gates_attention)}}},
                 short_convolution_rows()});
}

TensorRows mamba_mlp_rows() {
  const Condition biased = when(&ModelConfig::mlp_bias);
  return {
      {kInputNorm, "input_layernorm.weight"},
      {kMlpNorm, "pre_ff_layernorm.weight"},
      {kGate, "feed_forward.gate_proj.weight"},
      {kUp, "feed_forward.up_proj.weight"},
      {kDown, "feed_forward.down_proj.weight"},
      {kGateBias, "feed_forward.gate_proj.bias", {}, {biased}},
      {kUpBias, "feed_forward.up_proj.bias", {}, {biased}},
      {kDownBias, "feed_forward.down_proj.bias", {}, {biased}},
  };
}

/// Half of each head turns, whatever the key says beside the rope's own. Source: transformers 5.23
/// `BambaConfig.__post_init__`.
void resolve_share(const Json& json, ModelConfig& config) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const Json* rope = find_field(json, key))
      if (find_field(*rope, "partial_rotary_factor")) return;
  if (config.head_dim % 4 != 0)
    fail("head_dim is ", config.head_dim, ", expected a multiple of 4: half of it turns");
  for (RopeConfig& rope : config.ropes)
    (rope.type == RopeConfig::Type::kProportional ? rope.turning_dim : rope.rotary_dim) =
        config.head_dim / 2;
}

/// A list of so many positive numbers; nullopt where the key is absent or null.
std::optional<std::vector<float>> multipliers(const Json& json, std::string_view key,
                                              size_t count) {
  const Json* list = find_field(json, key);
  if (!list || list->is_null()) return std::nullopt;
  if (!list->is_array() || list->size() != count)
    fail("key '", key, "' is ", list->dump(), ", expected ", counted(count, "number"));
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(number_at(*list, i, key)));
  return values;
}

void resolve_multipliers(const Json& json, ModelConfig& config) {
  if (const auto mlp = multipliers(json, "mlp_multipliers", 2)) {
    config.gate_multiplier = mlp->at(0);
    config.mlp_output_multiplier = mlp->at(1);
  }
  if (const auto mixer = multipliers(json, "ssm_multipliers", MixerMultipliers().size()))
    std::ranges::copy(*mixer, config.recurrent.in_multipliers.begin());
}

TensorRows mamba_rows() {
  return with(
      when(&LayerConfig::has_recurrence),
      {
          {kMixerIn, "mamba.in_proj.weight"},
          {kMixerInBias, "mamba.in_proj.bias", {}, {when(&ModelConfig::mixer_bias)}},
          {kMixerConv, "mamba.conv1d.weight"},
          {kMixerConvBias, "mamba.conv1d.bias", {}, {when(&ModelConfig::has_conv_bias)}},
          {kMixerStates, "mamba.x_proj.weight"},
          {kMixerStep, "mamba.dt_proj.weight"},
          {kMixerStepBias, "mamba.dt_proj.bias", {Dim::kMixerInner}},
          {kMixerStepNorm, "mamba.dt_layernorm.weight"},
          {kMixerBNorm, "mamba.b_layernorm.weight"},
          {kMixerCNorm, "mamba.c_layernorm.weight"},
          {kMixerDecay, "mamba.A_log", {Dim::kMixerInner, Dim::kMixerStateDim}},
          {kMixerSkip, "mamba.D", {Dim::kMixerInner}},
          {kMixerOut, "mamba.out_proj.weight"},
          {kMixerOutBias, "mamba.out_proj.bias", {}, {when(&ModelConfig::mixer_output_bias)}},
      });
}

TensorRows feed_forward_rows() {
  return joined({
      {{kInputNorm, "input_layernorm.weight"}, {kMlpNorm, "pre_ff_layernorm.weight"}},
      with(unless(&LayerConfig::is_moe), {{kGate, "feed_forward.gate_proj.weight"},
                                          {kUp, "feed_forward.up_proj.weight"},
                                          {kDown, "feed_forward.down_proj.weight"}}),
      expert_rows({"feed_forward.router.weight", "feed_forward.experts.{}.gate_proj.weight",
                   "feed_forward.experts.{}.up_proj.weight",
                   "feed_forward.experts.{}.down_proj.weight"}),
  });
}

TensorRows nemotron_h_layer_rows() {
  const Condition attends = when(&LayerConfig::has_attention), mlp = when(&LayerConfig::has_mlp);
  const Condition moe = when(&LayerConfig::is_moe), biased = when(&ModelConfig::mlp_bias);
  const Condition mixes = when(&LayerConfig::has_mixer), fed = unless(&LayerConfig::has_mixer);
  const Condition latent = when(&ModelConfig::has_expert_latent);
  const auto expert = [&](Role role, std::string_view name) {
    return TensorRow{role, name, {}, {moe}, Layout::kOutIn, Dim::kExperts};
  };
  return joined({
      {{kInputNorm, "norm.weight", {}, {mixes}},
       {kMlpNorm, "norm.weight", {}, {fed}},
       {kQuery, "mixer.q_proj.weight", {}, {attends}},
       {kKey, "mixer.k_proj.weight", {}, {attends}},
       {kValue, "mixer.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}, {attends}},
       {kOutput, "mixer.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}, {attends}}},
      mamba2_rows({"mixer.in_proj.weight", "mixer.in_proj.bias", "mixer.conv1d.weight",
                   "mixer.conv1d.bias", "mixer.dt_bias", "mixer.A_log", "mixer.D",
                   "mixer.norm.weight", "mixer.out_proj.weight", "mixer.out_proj.bias"}),
      {{kUp, "mixer.up_proj.weight", {}, {mlp}},
       {kUpBias, "mixer.up_proj.bias", {}, {mlp, biased}},
       {kDown, "mixer.down_proj.weight", {}, {mlp}},
       {kDownBias, "mixer.down_proj.bias", {}, {mlp, biased}},
       {kRouter, "mixer.gate.weight", {}, {moe}},
       {kRouterCorrection, "mixer.gate.e_score_correction_bias", {}, {moe}},
       expert(kExpertUp, "mixer.experts.{}.up_proj.weight"),
       expert(kExpertDown, "mixer.experts.{}.down_proj.weight"),
       {kExpertsIn, "mixer.fc1_latent_proj.weight", {}, {moe, latent}},
       {kExpertsInBias, "mixer.fc1_latent_proj.bias", {}, {moe, latent, biased}},
       {kExpertsOut, "mixer.fc2_latent_proj.weight", {}, {moe, latent}},
       {kExpertsOutBias, "mixer.fc2_latent_proj.bias", {}, {moe, latent, biased}},
       {kSharedUp, "mixer.shared_experts.up_proj.weight", {}, {moe}},
       {kSharedUpBias, "mixer.shared_experts.up_proj.bias", {}, {moe, biased}},
       {kSharedDown, "mixer.shared_experts.down_proj.weight", {}, {moe}},
       {kSharedDownBias, "mixer.shared_experts.down_proj.bias", {}, {moe, biased}}},
  });
}

/// Two thirds of intermediate_size, times a factor, rounded up to a multiple. Source: transformers
/// lfm2 `Lfm2MLP`.
void adjust_intermediate_size(const Json& config, ModelConfig& resolved) {
  if (!optional_bool(config, "block_auto_adjust_ff_dim").value_or(true)) return;
  int64_t width = 2 * resolved.intermediate_size / 3;
  const Json* factor = find_field(config, "block_ffn_dim_multiplier");
  if (factor || !config.contains("block_ffn_dim_multiplier")) {
    const double by = number_of(config, "block_ffn_dim_multiplier").value_or(1.0);
    const int64_t multiple = optional_int(config, "block_multiple_of").value_or(256);
    if (multiple < 1 || multiple > resolved.intermediate_size * 1024)
      fail("key 'block_multiple_of' is ", multiple, ", expected 1 or more");
    width = static_cast<int64_t>(by * static_cast<double>(width));
    width = (width + multiple - 1) / multiple * multiple;
  }
  if (width < 1) fail("the adjusted intermediate_size is ", width, ", expected 1 or more");
  resolved.intermediate_size = width;
}

constexpr FamilyRow kRows[] = {
    {"bamba", "", "BambaAttention", "Bamba",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_n_heads": 128,
         "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
         "mamba_conv_bias": true, "max_position_embeddings": 262144, "attn_layer_indices": [],
         "partial_rotary_factor": 0.5})";
       family.aliases = {{"mamba_num_heads", "mamba_n_heads"}, {"mamba_head_dim", "mamba_d_head"}};
       family.switches = bias_switches({{"mamba_proj_bias", &ModelConfig::mixer_bias},
                                        {"mamba_proj_bias", &ModelConfig::mixer_output_bias},
                                        {"mamba_conv_bias", &ModelConfig::has_conv_bias}});
       family.fixed = {{"hidden_act", "\"silu\""}};  // also of the convolution
       family.known_keys = {"attn_rotary_emb"};
       family.resolve = resolve_share;
       family.recurrence = Mixer::kMamba2;
       family.model_tensors = model_rows("embed_tokens.weight", "final_layernorm.weight");
       family.layer_tensors = joined({with(when(&LayerConfig::has_attention), attention_rows()),
                                      mamba2_rows(kMamba), mamba_mlp_rows()});
     }},
    // Mamba 2 and attention of the same input in every layer, with multipliers of each branch.
    // Source: transformers 5.23, models/falcon_h1.
    {"falcon_h1", "bamba", "FalconH1Attention", "Falcon-H1",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024,
         "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
         "mamba_expand": 2, "mamba_conv_bias": true, "mamba_norm_before_gate": true,
         "mamba_rms_norm": false, "max_position_embeddings": 8192})";
       family.switches =
           bias_switches({{"mamba_proj_bias", &ModelConfig::mixer_bias},
                          {"projectors_bias", &ModelConfig::mixer_output_bias},
                          {"mamba_conv_bias", &ModelConfig::has_conv_bias},
                          {"mamba_rms_norm", &ModelConfig::has_mixer_norm},
                          {"mamba_norm_before_gate", &ModelConfig::norms_before_gate}});
       family.numbers = {{"embedding_multiplier", &ModelConfig::embedding_multiplier},
                         {"lm_head_multiplier", &ModelConfig::logits_multiplier},
                         {"attention_in_multiplier", &ModelConfig::attention_input_multiplier},
                         {"attention_out_multiplier", &ModelConfig::attention_output_multiplier},
                         {"key_multiplier", &ModelConfig::key_multiplier},
                         {"ssm_in_multiplier", &ModelConfig::mixer_input_multiplier},
                         {"ssm_out_multiplier", &ModelConfig::mixer_output_multiplier}};
       family.known_keys = {"mlp_multipliers", "ssm_multipliers", "mamba_use_mlp"};
       family.resolve = resolve_multipliers;
       family.mixes_beside_attention = true;
       family.layer_tensors = joined({attention_rows(), mamba2_rows(kMamba), mamba_mlp_rows()});
     }},
    // Mamba layers, every eighth attention without positions.
    {"jamba", "", "JambaAttention", "Jamba 1, 1.5, 1.6, Jamba Reasoning",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2,
         "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
         "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
         "mamba_conv_bias": true, "max_position_embeddings": 262144})";
       family.aliases = {{"num_experts", "num_local_experts"}};
       family.switches = {{"mamba_conv_bias", &ModelConfig::has_conv_bias},
                          {"mamba_proj_bias", &ModelConfig::mixer_bias},
                          {"mamba_proj_bias", &ModelConfig::mixer_output_bias}};
       family.fixed = {{"hidden_act", "\"silu\""}};
       // A single expert means no experts.
       family.known_keys = {"mamba_inner_layernorms"};
       family.resolve = [](const Json&, ModelConfig& config) {
         for (LayerConfig& layer : config.layers)
           if (config.moe.num_experts == 1) layer.is_moe = false;
       };
       family.recurrence = Mixer::kMamba;
       family.expert_layers = ExpertLayers::kPeriod;
       family.positions = Positions::kNone;
       family.model_tensors = model_rows("embed_tokens.weight", "final_layernorm.weight");
       family.layer_tensors = joined({with(when(&LayerConfig::has_attention), attention_rows()),
                                      mamba_rows(), feed_forward_rows()});
     }},
    // Mamba 2, attention, MLP or experts, one a layer.
    {"nemotron_h", "", "NemotronHAttention", "Nemotron-H, Nemotron Nano 2 and 3",
     [](Architecture& family) {
       family.defaults = R"({"head_dim": 128, "num_key_value_heads": 8, "mlp_hidden_act": "relu2",
         "layer_norm_epsilon": 1e-5, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
         "ssm_state_size": 128, "conv_kernel": 4, "use_conv_bias": true, "n_routed_experts": 8,
         "num_experts_per_tok": 2, "moe_intermediate_size": 7688, "n_group": 1, "topk_group": 1,
         "moe_shared_expert_intermediate_size": 7688, "norm_topk_prob": true,
         "time_step_min": 0.001})";
       family.aliases = {
           {"head_dim", "attention_head_dim"},
           {"time_step_min", "mamba_dt_min"},
           {"rms_norm_eps", "layer_norm_epsilon"},
           {"hidden_act", "mlp_hidden_act"},
           {"mamba_n_groups", "n_groups"},
           {"mamba_d_state", "ssm_state_size"},
           {"mamba_d_conv", "conv_kernel"},
           {"num_experts", "n_routed_experts"},
           {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"}};
       family.switches = {{"mlp_bias", &ModelConfig::mlp_bias},
                          {"use_bias", &ModelConfig::mixer_bias},
                          {"use_bias", &ModelConfig::mixer_output_bias},
                          {"use_conv_bias", &ModelConfig::has_conv_bias},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.fixed = {{"mamba_hidden_act", "\"silu\""}};
       family.known_keys = {"attention_bias",
                            "mamba_proj_bias",
                            "expand",
                            "chunk_size",
                            "norm_eps",
                            "rope_theta",
                            "partial_rotary_factor",
                            "n_shared_experts",
                            "time_step_limit"};
       family.recurrence = Mixer::kMamba2;
       family.has_single_blocks = true;
       family.expert_layers = ExpertLayers::kAll;
       family.positions = Positions::kNone;
       family.router_score = RouterScore::kSigmoid;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.prefixes = {{"backbone."}};
       family.attention_module = "mixer";
       family.model_tensors = model_rows("embeddings.weight", "norm_f.weight");
       family.layer_tensors = nemotron_h_layer_rows();
       family.ignored_prefixes = {"mtp."};
     }},
    // Short convolutions, between them Llama's attention with normed heads.
    {"lfm2", "", "Lfm2Attention", "LFM2 350M, 700M, 1.2B, 2.6B",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
         "tie_word_embeddings": true, "conv_L_cache": 3, "conv_bias": false})";
       family.aliases = {{"rms_norm_eps", "norm_eps"},
                         {"tie_word_embeddings", "tie_embedding"},
                         {"intermediate_size", "block_ff_dim"},
                         {"attn_layer_indices", "full_attn_idxs"}};
       family.switches = {{"conv_bias", &ModelConfig::mixer_bias},
                          {"conv_bias", &ModelConfig::mixer_output_bias},
                          {"conv_bias", &ModelConfig::has_conv_bias}};
       family.known_keys = {"block_auto_adjust_ff_dim", "block_ffn_dim_multiplier",
                            "block_multiple_of", "block_use_swiglu"};
       family.resolve = adjust_intermediate_size;
       family.recurrence = Mixer::kShortConvolution;
       family.model_tensors = model_rows("embed_tokens.weight", "embedding_norm.weight");
       family.layer_tensors = lfm2_rows();
     }},
    // LFM2 with experts, which a sigmoid chooses.
    {"lfm2_moe", "lfm2", "Lfm2MoeAttention", "LFM2-8B-A1B",
     [](Architecture& family) {
       family.defaults.merge(R"({"num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4,
         "moe_intermediate_size": 1792, "norm_topk_prob": true})");
       family.aliases = {{"rms_norm_eps", "norm_eps"},
                         {"tie_word_embeddings", "tie_embedding"},
                         {"first_k_dense_replace", "num_dense_layers"}};
       add(family.switches, {{"norm_topk_prob", &ModelConfig::norm_topk_prob},
                             {"use_expert_bias", &ModelConfig::corrects_router}});
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.known_keys = {};
       family.resolve = nullptr;
       family.expert_layers = ExpertLayers::kAfterFirst;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors = joined(
           {lfm2_rows(),
            expert_rows({"feed_forward.gate.weight", "feed_forward.experts.{}.w1.weight",
                         "feed_forward.experts.{}.w3.weight", "feed_forward.experts.{}.w2.weight"}),
            with(when(&ModelConfig::corrects_router),
                 correction_rows("feed_forward.expert_bias"))});
     }},
    // LFM2 with windows, gates a head and norms behind attention, convolutions and MLPs.
    {"lfm3", "lfm2", "Lfm3Attention", "LFM3",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 4, "head_dim": 128, "norm_eps": 1e-5,
         "sliding_window": 256, "tie_word_embeddings": true, "conv_L_cache": 7, "conv_bias": false,
         "use_sandwich_norm": true, "use_attention_gate": true,
         "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
         "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
         "partial_rotary_factor": 0.5}}})";
       family.aliases = {{"rms_norm_eps", "norm_eps"}};
       add(family.switches, {{"use_sandwich_norm", &ModelConfig::has_output_norms},
                             {"use_attention_gate", &ModelConfig::gates_attention},
                             {"attention_bias", &ModelConfig::attention_bias},
                             {"attention_bias", &ModelConfig::output_bias}});
       family.known_keys = {};
       family.resolve = [](const Json& config, ModelConfig& resolved) {
         require_layer_types(config, resolved);
         resolved.gates_whole_heads = true;
       };
       family.has_query_gate = true;
       family.sliding_window = SlidingWindow::kTyped;
       family.layer_tensors = lfm3_rows();
     }},
};

}  // namespace

Lineage hybrid_lineage() {
  return kRows;
}

}  // namespace kvcal
