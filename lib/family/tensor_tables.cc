#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

TensorRows joined(std::initializer_list<TensorRows> tables) {
  TensorRows all;
  for (const TensorRows& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

TensorRows model_rows(std::string_view embedding, std::string_view norm, std::string_view head) {
  return {
      {kEmbedding, embedding},
      {kFinalNorm, norm},
      {kLmHead, head, {}, {unless(&ModelConfig::tie_word_embeddings)}},
  };
}

TensorRows pre_norm_rows() {
  return {
      {kInputNorm, "input_layernorm.weight"},
      {kMlpNorm, "post_attention_layernorm.weight", {}, {when(&ModelConfig::has_mlp_norm)}},
  };
}

TensorRows pre_norm_bias_rows() {
  return {
      {kInputNormBias, "input_layernorm.bias"},
      {kMlpNormBias, "post_attention_layernorm.bias", {}, {when(&ModelConfig::has_mlp_norm)}},
  };
}

TensorRows post_norm_rows() {
  return {
      {kAttentionOutputNorm, "post_attention_layernorm.weight"},
      {kMlpOutputNorm, "post_feedforward_layernorm.weight"},
  };
}

TensorRows query_key_value_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {kQuery, "self_attn.q_proj.weight"},
      {kKey, "self_attn.k_proj.weight"},
      {kValue, "self_attn.v_proj.weight"},
      {kQueryBias, "self_attn.q_proj.bias", {}, {biased}},
      {kKeyBias, "self_attn.k_proj.bias", {}, {biased}},
      {kValueBias, "self_attn.v_proj.bias", {}, {biased}},
  };
}

TensorRows attention_rows_named(const AttentionNames& names) {
  const Condition biased = when(&ModelConfig::attention_bias);
  TensorRows rows{
      {kQuery, names.query},
      {kKey, names.key},
      {kValue, names.value, {Dim::kKvWidth, Dim::kHidden}},
      {kQueryBias, names.query_bias, {}, {biased}},
      {kKeyBias, names.key_bias, {}, {biased}},
      {kValueBias, names.value_bias, {Dim::kKvWidth}, {biased}},
      {kOutput, names.output, {Dim::kHidden, Dim::kQueryWidth}},
      {kOutputBias, names.output_bias, {}, {when(&ModelConfig::output_bias)}},
  };
  std::erase_if(rows, [](const TensorRow& row) { return row.name.empty(); });
  return rows;
}

TensorRows attention_rows() {
  return joined({query_key_value_rows(),
                 {{kOutput, "self_attn.o_proj.weight"},
                  {kOutputBias, "self_attn.o_proj.bias", {}, {when(&ModelConfig::output_bias)}}}});
}

TensorRows head_norm_rows(std::string_view query, std::string_view key) {
  return {
      {kQueryNorm, query},
      {kKeyNorm, key},
  };
}

TensorRows whole_norm_rows() {
  return {
      {kQueryNorm, "self_attn.q_norm.weight", {Dim::kQueryWidth}},
      {kKeyNorm, "self_attn.k_norm.weight", {Dim::kKvWidth}},
  };
}

TensorRows mlp_rows() {
  const Condition dense = unless(&LayerConfig::is_moe), biased = when(&ModelConfig::mlp_bias);
  return {
      {kGate, "mlp.gate_proj.weight", {}, {dense}},
      {kUp, "mlp.up_proj.weight", {}, {dense}},
      {kDown, "mlp.down_proj.weight", {}, {dense}},
      {kGateBias, "mlp.gate_proj.bias", {}, {dense, biased}},
      {kUpBias, "mlp.up_proj.bias", {}, {dense, biased}},
      {kDownBias, "mlp.down_proj.bias", {}, {dense, biased}},
  };
}

TensorRows fused_mlp_rows() {
  return {
      {kGateUp, "mlp.gate_up_proj.weight"},
      {kDown, "mlp.down_proj.weight"},
  };
}

TensorRows plain_mlp_rows(std::string_view up, std::string_view up_bias, std::string_view down,
                          std::string_view down_bias) {
  const Condition biased = when(&ModelConfig::mlp_bias);
  return {
      {kUp, up},
      {kUpBias, up_bias, {}, {biased}},
      {kDown, down},
      {kDownBias, down_bias, {}, {biased}},
  };
}

TensorRows expert_rows(const ExpertNames& names) {
  const Condition moe = when(&LayerConfig::is_moe);
  const auto each = [&](Role role, std::string_view name) {
    return TensorRow{role, name, {}, {moe}, Layout::kOutIn, Dim::kExperts};
  };
  return {
      {kRouter, names.router, {}, {moe}},
      each(kExpertGate, names.gate),
      each(kExpertUp, names.up),
      each(kExpertDown, names.down),
  };
}

TensorRows correction_rows(std::string_view name) {
  return {{kRouterCorrection, name, {}, {when(&LayerConfig::is_moe)}}};
}

TensorRows shared_expert_rows(const SharedNames& names) {
  const std::vector<Condition> shared{when(&LayerConfig::is_moe),
                                      when(&ModelConfig::has_shared_expert)};
  return {
      {kSharedGate, names.gate, {}, shared},
      {kSharedUp, names.up, {}, shared},
      {kSharedDown, names.down, {}, shared},
  };
}

TensorRows shared_bias_rows(const SharedNames& biases) {
  const std::vector<Condition> biased{when(&LayerConfig::is_moe),
                                      when(&ModelConfig::has_shared_expert),
                                      when(&ModelConfig::mlp_bias)};
  return {
      {kSharedGateBias, biases.gate, {}, biased},
      {kSharedUpBias, biases.up, {}, biased},
      {kSharedDownBias, biases.down, {}, biased},
  };
}

TensorRows stacked_expert_rows(const StackedNames& names, Layout layout) {
  const Condition moe = when(&LayerConfig::is_moe);
  const auto shape = [&](Dim out, Dim in) {
    return layout == Layout::kOutIn ? std::vector<Dim>{out, in} : std::vector<Dim>{in, out};
  };
  return {
      {.role = kRouter, .name = names.router, .conditions = {moe}, .module = names.router_module},
      {kExpertGateUp,
       names.gate_up,
       shape(Dim::kExpertGateUpWidth, Dim::kHidden),
       {moe},
       layout,
       Dim::kExperts,
       {{kExpertGate, names.split.gate}, {kExpertUp, names.split.up}}},
      {kExpertDown,
       names.down,
       shape(Dim::kHidden, Dim::kExpertIntermediate),
       {moe},
       layout,
       Dim::kExperts,
       {{kExpertDown, names.split.down}}},
  };
}

TensorRows fused_expert_rows(Layout layout) {
  return stacked_expert_rows({"mlp.gate.weight", "mlp.gate", "mlp.experts.gate_up_proj",
                              "mlp.experts.down_proj", kSplitExperts},
                             layout);
}

TensorRows with(Condition condition, TensorRows rows) {
  for (TensorRow& row : rows) row.conditions.push_back(condition);
  return rows;
}

TensorRows latent_attention_rows() {
  const Condition ranked = when(&ModelConfig::has_query_rank);
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {kQuery, "self_attn.q_proj.weight", {}, {unless(&ModelConfig::has_query_rank)}},
      {kQueryDown, "self_attn.q_a_proj.weight", {}, {ranked}},
      {kQueryDownBias, "self_attn.q_a_proj.bias", {}, {ranked, biased}},
      {kQueryDownNorm, "self_attn.q_a_layernorm.weight", {}, {ranked}},
      {kQueryUp, "self_attn.q_b_proj.weight", {}, {ranked}},
      {kLatent, "self_attn.kv_a_proj_with_mqa.weight"},
      {kLatentBias, "self_attn.kv_a_proj_with_mqa.bias", {}, {biased}},
      {kLatentNorm, "self_attn.kv_a_layernorm.weight"},
      {kLatentUp, "self_attn.kv_b_proj.weight"},
      {kOutput, "self_attn.o_proj.weight"},
      {kOutputBias, "self_attn.o_proj.bias", {}, {biased}},
  };
}

TensorRows kimi_delta_net_rows(std::vector<Dim> decay_shape) {
  const auto convolution = [](Role role, std::string_view name) {
    return TensorRow{role, name, {Dim::kMixerInner, Dim::kOne, Dim::kMixerKernel}};
  };
  return {
      {kMixerQuery, "self_attn.q_proj.weight"},
      {kMixerKey, "self_attn.k_proj.weight"},
      {kMixerValue, "self_attn.v_proj.weight"},
      convolution(kMixerConvQuery, "self_attn.q_conv1d.weight"),
      convolution(kMixerConvKey, "self_attn.k_conv1d.weight"),
      convolution(kMixerConvValue, "self_attn.v_conv1d.weight"),
      {kMixerAlphaDown, "self_attn.f_a_proj.weight"},
      {kMixerAlphaUp, "self_attn.f_b_proj.weight"},
      {kMixerStepBias, "self_attn.dt_bias", {Dim::kMixerKeyWidth}},
      {kMixerDecay, "self_attn.A_log", std::move(decay_shape)},
      {kMixerBeta, "self_attn.b_proj.weight"},
      {kMixerZDown, "self_attn.g_a_proj.weight"},
      {kMixerZUp, "self_attn.g_b_proj.weight"},
      {kMixerNorm, "self_attn.o_norm.weight", {Dim::kMixerHeadDim}},
      {kMixerOut, "self_attn.o_proj.weight"},
  };
}

std::vector<KeyAlias> kimi_delta_net_aliases() {
  return {{"linear_num_value_heads", "linear_attn_config.num_heads"},
          {"linear_num_value_heads", "linear_num_heads"},
          {"linear_num_key_heads", "linear_attn_config.num_heads"},
          {"linear_num_key_heads", "linear_num_heads"},
          {"linear_value_head_dim", "linear_attn_config.head_dim"},
          {"linear_value_head_dim", "linear_head_dim"},
          {"linear_key_head_dim", "linear_attn_config.head_dim"},
          {"linear_key_head_dim", "linear_head_dim"},
          {"linear_conv_kernel_dim", "linear_attn_config.short_conv_kernel_size"}};
}

TensorRows mamba2_rows(const Mamba2Names& names) {
  const Condition biased = when(&ModelConfig::mixer_bias);
  return with(when(&LayerConfig::has_recurrence),
              {
                  {kMixerIn, names.in},
                  {kMixerInBias, names.in_bias, {}, {biased}},
                  {kMixerConv, names.conv},
                  {kMixerConvBias, names.conv_bias, {}, {when(&ModelConfig::has_conv_bias)}},
                  {kMixerStepBias, names.step_bias},
                  {kMixerDecay, names.decay},
                  {kMixerSkip, names.skip},
                  {kMixerNorm, names.norm, {}, {when(&ModelConfig::has_mixer_norm)}},
                  {kMixerOut, names.out},
                  {kMixerOutBias, names.out_bias, {}, {when(&ModelConfig::mixer_output_bias)}},
              });
}

std::vector<SwitchKey> attention_bias_switches(const std::vector<SwitchKey>& more) {
  std::vector<SwitchKey> switches{{"attention_bias", &ModelConfig::attention_bias},
                                  {"attention_bias", &ModelConfig::output_bias}};
  switches.insert(switches.end(), more.begin(), more.end());
  return switches;
}

std::vector<SwitchKey> bias_switches(const std::vector<SwitchKey>& more) {
  std::vector<SwitchKey> switches = attention_bias_switches({{"mlp_bias", &ModelConfig::mlp_bias}});
  switches.insert(switches.end(), more.begin(), more.end());
  return switches;
}

void require_layer_types(const Json& config, ModelConfig&) {
  if (!find_field(config, "layer_types")) fail_missing("layer_types", "a word for each layer");
}

void share_parallel_norm(const Json&, ModelConfig& config) {
  config.parallel_residual = true;
  config.has_mlp_norm = false;
}

}  // namespace kvcal
