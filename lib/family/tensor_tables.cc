#include "family/tensor_tables.h"

namespace kvcal {

TensorRows joined(std::initializer_list<TensorRows> tables) {
  TensorRows all;
  for (const TensorRows& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

TensorRows model_rows() {
  return model_rows_named("embed_tokens.weight", "norm.weight", "lm_head.weight");
}

TensorRows model_rows_named(std::string_view embedding, std::string_view norm,
                            std::string_view head) {
  return {
      {Role::kEmbedding, embedding, {Dim::kVocab, Dim::kHidden}},
      {Role::kFinalNorm, norm, {Dim::kHidden}},
      {Role::kLmHead,
       head,
       {Dim::kVocab, Dim::kHidden},
       {unless(&ModelConfig::tie_word_embeddings)}},
  };
}

TensorRows pre_norm_rows() {
  return {
      {Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpNorm,
       "post_attention_layernorm.weight",
       {Dim::kHidden},
       {when(&ModelConfig::has_mlp_norm)}},
  };
}

TensorRows pre_norm_bias_rows() {
  return {
      {Role::kInputNormBias, "input_layernorm.bias", {Dim::kHidden}},
      {Role::kMlpNormBias,
       "post_attention_layernorm.bias",
       {Dim::kHidden},
       {when(&ModelConfig::has_mlp_norm)}},
  };
}

TensorRows sandwich_norm_rows() {
  return {
      {Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
      {Role::kAttentionOutputNorm, "post_attention_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpNorm, "pre_feedforward_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpOutputNorm, "post_feedforward_layernorm.weight", {Dim::kHidden}},
  };
}

TensorRows post_norm_rows() {
  return {
      {Role::kAttentionOutputNorm, "post_attention_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpOutputNorm, "post_feedforward_layernorm.weight", {Dim::kHidden}},
  };
}

TensorRows query_key_value_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {Role::kQuery, "self_attn.q_proj.weight", {Dim::kQueryWidth, Dim::kHidden}},
      {Role::kKey, "self_attn.k_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kValue, "self_attn.v_proj.weight", {Dim::kValueWidth, Dim::kHidden}},
      {Role::kQueryBias, "self_attn.q_proj.bias", {Dim::kQueryWidth}, {biased}},
      {Role::kKeyBias, "self_attn.k_proj.bias", {Dim::kKvWidth}, {biased}},
      {Role::kValueBias, "self_attn.v_proj.bias", {Dim::kValueWidth}, {biased}},
  };
}

TensorRows attention_rows_named(const AttentionNames& names) {
  const Condition biased = when(&ModelConfig::attention_bias);
  TensorRows rows{
      {Role::kQuery, names.query, {Dim::kQueryWidth, Dim::kHidden}},
      {Role::kKey, names.key, {Dim::kKvWidth, Dim::kHidden}},
      {Role::kValue, names.value, {Dim::kKvWidth, Dim::kHidden}},
      {Role::kQueryBias, names.query_bias, {Dim::kQueryWidth}, {biased}},
      {Role::kKeyBias, names.key_bias, {Dim::kKvWidth}, {biased}},
      {Role::kValueBias, names.value_bias, {Dim::kKvWidth}, {biased}},
      {Role::kOutput, names.output, {Dim::kHidden, Dim::kQueryWidth}},
      {Role::kOutputBias, names.output_bias, {Dim::kHidden}, {when(&ModelConfig::output_bias)}},
  };
  std::erase_if(rows, [](const TensorRow& row) { return row.name.empty(); });
  return rows;
}

TensorRows attention_rows() {
  return joined({query_key_value_rows(),
                 {{Role::kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kAttendedWidth}},
                  {Role::kOutputBias,
                   "self_attn.o_proj.bias",
                   {Dim::kHidden},
                   {when(&ModelConfig::output_bias)}}}});
}

TensorRows gated_attention_rows() {
  return {
      {Role::kQueryAndGate, "self_attn.q_proj.weight", {Dim::kQueryAndGateWidth, Dim::kHidden}},
      {Role::kKey, "self_attn.k_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kValue, "self_attn.v_proj.weight", {Dim::kKvWidth, Dim::kHidden}},
      {Role::kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {Role::kQueryNorm, "self_attn.q_norm.weight", {Dim::kHeadDim}},
      {Role::kKeyNorm, "self_attn.k_norm.weight", {Dim::kHeadDim}},
  };
}

TensorRows head_norm_rows(std::string_view query, std::string_view key) {
  return {
      {Role::kQueryNorm, query, {Dim::kHeadDim}},
      {Role::kKeyNorm, key, {Dim::kHeadDim}},
  };
}

TensorRows whole_norm_rows() {
  return {
      {Role::kQueryNorm, "self_attn.q_norm.weight", {Dim::kQueryWidth}},
      {Role::kKeyNorm, "self_attn.k_norm.weight", {Dim::kKvWidth}},
  };
}

TensorRows mlp_rows() {
  const Condition dense = unless(&LayerConfig::is_moe), biased = when(&ModelConfig::mlp_bias);
  return {
      {Role::kGate, "mlp.gate_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {dense}},
      {Role::kUp, "mlp.up_proj.weight", {Dim::kIntermediate, Dim::kHidden}, {dense}},
      {Role::kDown, "mlp.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}, {dense}},
      {Role::kGateBias, "mlp.gate_proj.bias", {Dim::kIntermediate}, {dense, biased}},
      {Role::kUpBias, "mlp.up_proj.bias", {Dim::kIntermediate}, {dense, biased}},
      {Role::kDownBias, "mlp.down_proj.bias", {Dim::kHidden}, {dense, biased}},
  };
}

TensorRows fused_mlp_rows() {
  return {
      {Role::kGateUp, "mlp.gate_up_proj.weight", {Dim::kGateUpWidth, Dim::kHidden}},
      {Role::kDown, "mlp.down_proj.weight", {Dim::kHidden, Dim::kIntermediate}},
  };
}

TensorRows plain_mlp_rows(std::string_view up, std::string_view up_bias, std::string_view down,
                          std::string_view down_bias) {
  const Condition biased = when(&ModelConfig::mlp_bias);
  return {
      {Role::kUp, up, {Dim::kIntermediate, Dim::kHidden}},
      {Role::kUpBias, up_bias, {Dim::kIntermediate}, {biased}},
      {Role::kDown, down, {Dim::kHidden, Dim::kIntermediate}},
      {Role::kDownBias, down_bias, {Dim::kHidden}, {biased}},
  };
}

TensorRows expert_rows(const ExpertNames& names) {
  const Condition moe = when(&LayerConfig::is_moe);
  const auto each = [&](Role role, std::string_view name, std::vector<Dim> shape) {
    return TensorRow{role, name, std::move(shape), {moe}, Layout::kOutIn, Dim::kExperts};
  };
  return {
      {Role::kRouter, names.router, {Dim::kExperts, Dim::kHidden}, {moe}},
      each(Role::kExpertGate, names.gate, {Dim::kExpertIntermediate, Dim::kHidden}),
      each(Role::kExpertUp, names.up, {Dim::kExpertIntermediate, Dim::kHidden}),
      each(Role::kExpertDown, names.down, {Dim::kHidden, Dim::kExpertIntermediate}),
  };
}

TensorRows shared_cache_attention_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  const Condition own = when(&LayerConfig::has_own_cache);
  const Condition valued = when(&LayerConfig::has_value_projection);
  return {
      {Role::kQuery, "self_attn.q_proj.weight", {Dim::kQueryWidth, Dim::kHidden}},
      {Role::kKey, "self_attn.k_proj.weight", {Dim::kKvWidth, Dim::kHidden}, {own}},
      {Role::kValue, "self_attn.v_proj.weight", {Dim::kValueWidth, Dim::kHidden}, {own, valued}},
      {Role::kQueryBias, "self_attn.q_proj.bias", {Dim::kQueryWidth}, {biased}},
      {Role::kKeyBias, "self_attn.k_proj.bias", {Dim::kKvWidth}, {biased, own}},
      {Role::kValueBias, "self_attn.v_proj.bias", {Dim::kValueWidth}, {biased, own, valued}},
      {Role::kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kAttendedWidth}},
      {Role::kOutputBias,
       "self_attn.o_proj.bias",
       {Dim::kHidden},
       {when(&ModelConfig::output_bias)}},
      {Role::kQueryNorm, "self_attn.q_norm.weight", {Dim::kHeadDim}},
      {Role::kKeyNorm, "self_attn.k_norm.weight", {Dim::kHeadDim}, {own}},
  };
}

TensorRows layer_input_model_rows() {
  const Condition fed = when(&ModelConfig::has_layer_inputs);
  return {{Role::kLayerInputEmbedding,
           "embed_tokens_per_layer.weight",
           {Dim::kLayerInputVocab, Dim::kAllLayerInputs},
           {fed}},
          {.role = Role::kLayerInputProjection,
           .name = "per_layer_model_projection.weight",
           .shape = {Dim::kAllLayerInputs, Dim::kHidden},
           .conditions = {fed},
           .is_run_by_layers = true},
          {Role::kLayerInputNorm, "per_layer_projection_norm.weight", {Dim::kLayerInput}, {fed}}};
}

TensorRows layer_input_rows() {
  return with(
      when(&ModelConfig::has_layer_inputs),
      {{Role::kLayerInputGate, "per_layer_input_gate.weight", {Dim::kLayerInput, Dim::kHidden}},
       {Role::kLayerInputOutput, "per_layer_projection.weight", {Dim::kHidden, Dim::kLayerInput}},
       {Role::kLayerInputOutputNorm, "post_per_layer_input_norm.weight", {Dim::kHidden}}});
}

TensorRows latent_attention_rows() {
  const Condition ranked = when(&ModelConfig::has_query_rank);
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {Role::kQuery,
       "self_attn.q_proj.weight",
       {Dim::kQueryWidth, Dim::kHidden},
       {unless(&ModelConfig::has_query_rank)}},
      {Role::kQueryDown, "self_attn.q_a_proj.weight", {Dim::kQueryRank, Dim::kHidden}, {ranked}},
      {Role::kQueryDownBias, "self_attn.q_a_proj.bias", {Dim::kQueryRank}, {ranked, biased}},
      {Role::kQueryDownNorm, "self_attn.q_a_layernorm.weight", {Dim::kQueryRank}, {ranked}},
      {Role::kQueryUp, "self_attn.q_b_proj.weight", {Dim::kQueryWidth, Dim::kQueryRank}, {ranked}},
      {Role::kLatent, "self_attn.kv_a_proj_with_mqa.weight", {Dim::kLatentWidth, Dim::kHidden}},
      {Role::kLatentBias, "self_attn.kv_a_proj_with_mqa.bias", {Dim::kLatentWidth}, {biased}},
      {Role::kLatentNorm, "self_attn.kv_a_layernorm.weight", {Dim::kLatentRank}},
      {Role::kLatentUp, "self_attn.kv_b_proj.weight", {Dim::kLatentUpWidth, Dim::kLatentRank}},
      {Role::kOutput, "self_attn.o_proj.weight", {Dim::kHidden, Dim::kAttendedWidth}},
      {Role::kOutputBias, "self_attn.o_proj.bias", {Dim::kHidden}, {biased}},
  };
}

TensorRows indexer_rows() {
  return with(
      when(&LayerConfig::has_indexer),
      {
          {Role::kIndexerQuery,
           "self_attn.indexer.wq_b.weight",
           {Dim::kIndexerQueryWidth, Dim::kQueryRank}},
          {Role::kIndexerKey, "self_attn.indexer.wk.weight", {Dim::kIndexerHeadDim, Dim::kHidden}},
          {Role::kIndexerKeyNorm, "self_attn.indexer.k_norm.weight", {Dim::kIndexerHeadDim}},
          {Role::kIndexerKeyNormBias, "self_attn.indexer.k_norm.bias", {Dim::kIndexerHeadDim}},
          {Role::kIndexerWeights,
           "self_attn.indexer.weights_proj.weight",
           {Dim::kIndexerHeads, Dim::kHidden}},
      });
}

TensorRows correction_rows(std::string_view name) {
  return {{Role::kRouterCorrection, name, {Dim::kExperts}, {when(&LayerConfig::is_moe)}}};
}

TensorRows shared_expert_rows(const SharedNames& names) {
  const std::vector<Condition> shared{when(&LayerConfig::is_moe),
                                      when(&ModelConfig::has_shared_expert)};
  return {
      {Role::kSharedGate, names.gate, {Dim::kSharedIntermediate, Dim::kHidden}, shared},
      {Role::kSharedUp, names.up, {Dim::kSharedIntermediate, Dim::kHidden}, shared},
      {Role::kSharedDown, names.down, {Dim::kHidden, Dim::kSharedIntermediate}, shared},
  };
}

TensorRows gated_shared_expert_rows() {
  const Condition moe = when(&LayerConfig::is_moe);
  return {
      {Role::kSharedGate,
       "mlp.shared_expert.gate_proj.weight",
       {Dim::kSharedIntermediate, Dim::kHidden},
       {moe}},
      {Role::kSharedUp,
       "mlp.shared_expert.up_proj.weight",
       {Dim::kSharedIntermediate, Dim::kHidden},
       {moe}},
      {Role::kSharedDown,
       "mlp.shared_expert.down_proj.weight",
       {Dim::kHidden, Dim::kSharedIntermediate},
       {moe}},
      {Role::kSharedExpertGate, "mlp.shared_expert_gate.weight", {Dim::kOne, Dim::kHidden}, {moe}},
  };
}

TensorRows stacked_expert_rows(const StackedNames& names, Layout layout) {
  const Condition moe = when(&LayerConfig::is_moe);
  const auto shape = [&](Dim out, Dim in) {
    return layout == Layout::kOutIn ? std::vector<Dim>{out, in} : std::vector<Dim>{in, out};
  };
  return {
      {.role = Role::kRouter,
       .name = names.router,
       .shape = {Dim::kExperts, Dim::kHidden},
       .conditions = {moe},
       .module = names.router_module},
      {Role::kExpertGateUp,
       names.gate_up,
       shape(Dim::kExpertGateUpWidth, Dim::kHidden),
       {moe},
       layout,
       Dim::kExperts,
       {{Role::kExpertGate, names.split.gate}, {Role::kExpertUp, names.split.up}}},
      {Role::kExpertDown,
       names.down,
       shape(Dim::kHidden, Dim::kExpertIntermediate),
       {moe},
       layout,
       Dim::kExperts,
       {{Role::kExpertDown, names.split.down}}},
  };
}

TensorRows fused_expert_rows(Layout layout) {
  return stacked_expert_rows({"mlp.gate.weight", "mlp.gate", "mlp.experts.gate_up_proj",
                              "mlp.experts.down_proj", kSplitExperts},
                             layout);
}

TensorRows split_delta_net_rows() {
  return {
      {Role::kMixerIn, "linear_attn.in_proj_qkv.weight", {Dim::kMixerChannels, Dim::kHidden}},
      {Role::kMixerZ, "linear_attn.in_proj_z.weight", {Dim::kMixerInner, Dim::kHidden}},
      {Role::kMixerBeta, "linear_attn.in_proj_b.weight", {Dim::kMixerHeads, Dim::kHidden}},
      {Role::kMixerAlpha, "linear_attn.in_proj_a.weight", {Dim::kMixerHeads, Dim::kHidden}},
      {Role::kMixerConv,
       "linear_attn.conv1d.weight",
       {Dim::kMixerChannels, Dim::kOne, Dim::kMixerKernel}},
      {Role::kMixerStepBias, "linear_attn.dt_bias", {Dim::kMixerHeads}},
      {Role::kMixerDecay, "linear_attn.A_log", {Dim::kMixerHeads}},
      {Role::kMixerNorm, "linear_attn.norm.weight", {Dim::kMixerHeadDim}},
      {Role::kMixerOut, "linear_attn.out_proj.weight", {Dim::kHidden, Dim::kMixerInner}},
  };
}

TensorRows stacked_shared_rows() {
  const std::vector<Condition> shared{when(&LayerConfig::is_moe),
                                      when(&ModelConfig::has_shared_expert)};
  return {
      {Role::kSharedGateUp,
       "shared_mlp.input_linear.weight",
       {Dim::kSharedGateUpWidth, Dim::kHidden},
       shared},
      {Role::kSharedDown,
       "shared_mlp.output_linear.weight",
       {Dim::kHidden, Dim::kSharedIntermediate},
       shared},
  };
}

TensorRows with(Condition condition, TensorRows rows) {
  for (TensorRow& row : rows) row.conditions.push_back(condition);
  return rows;
}

TensorRows mamba2_rows(const Mamba2Names& names) {
  const Condition biased = when(&ModelConfig::mixer_bias);
  return with(
      when(&LayerConfig::has_recurrence),
      {
          {Role::kMixerIn, names.in, {Dim::kMixerInWidth, Dim::kHidden}},
          {Role::kMixerInBias, names.in_bias, {Dim::kMixerInWidth}, {biased}},
          {Role::kMixerConv, names.conv, {Dim::kMixerChannels, Dim::kOne, Dim::kMixerKernel}},
          {Role::kMixerConvBias,
           names.conv_bias,
           {Dim::kMixerChannels},
           {when(&ModelConfig::has_conv_bias)}},
          {Role::kMixerStepBias, names.step_bias, {Dim::kMixerHeads}},
          {Role::kMixerDecay, names.decay, {Dim::kMixerHeads}},
          {Role::kMixerSkip, names.skip, {Dim::kMixerHeads}},
          {Role::kMixerNorm, names.norm, {Dim::kMixerInner}, {when(&ModelConfig::has_mixer_norm)}},
          {Role::kMixerOut, names.out, {Dim::kHidden, Dim::kMixerInner}},
          {Role::kMixerOutBias,
           names.out_bias,
           {Dim::kHidden},
           {when(&ModelConfig::mixer_output_bias)}},
      });
}

TensorRows lfm2_rows() {
  const Condition attends = when(&LayerConfig::has_attention);
  const Condition biased = when(&ModelConfig::mixer_bias);
  const Condition dense = unless(&LayerConfig::is_moe);
  const TensorRows around{
      {Role::kInputNorm, "operator_norm.weight", {Dim::kHidden}},
      {Role::kMlpNorm, "ffn_norm.weight", {Dim::kHidden}},
      {Role::kGate, "feed_forward.w1.weight", {Dim::kIntermediate, Dim::kHidden}, {dense}},
      {Role::kUp, "feed_forward.w3.weight", {Dim::kIntermediate, Dim::kHidden}, {dense}},
      {Role::kDown, "feed_forward.w2.weight", {Dim::kHidden, Dim::kIntermediate}, {dense}},
  };
  return joined({around, with(attends, attention_rows_named(kOutProjAttention)),
                 with(attends, head_norm_rows("self_attn.q_layernorm.weight",
                                              "self_attn.k_layernorm.weight")),
                 with(when(&LayerConfig::has_recurrence),
                      {{Role::kMixerIn, "conv.in_proj.weight", {Dim::kMixerInWidth, Dim::kHidden}},
                       {Role::kMixerInBias, "conv.in_proj.bias", {Dim::kMixerInWidth}, {biased}},
                       {Role::kMixerConv,
                        "conv.conv.weight",
                        {Dim::kMixerChannels, Dim::kOne, Dim::kMixerKernel}},
                       {Role::kMixerConvBias,
                        "conv.conv.bias",
                        {Dim::kMixerChannels},
                        {when(&ModelConfig::has_conv_bias)}},
                       {Role::kMixerOut, "conv.out_proj.weight", {Dim::kHidden, Dim::kMixerInner}},
                       {Role::kMixerOutBias,
                        "conv.out_proj.bias",
                        {Dim::kHidden},
                        {when(&ModelConfig::mixer_output_bias)}}})});
}

std::vector<NumberKey> granite_multipliers() {
  return {
      {"embedding_multiplier", &ModelConfig::embedding_multiplier},
      {"attention_multiplier", &ModelConfig::softmax_scale},
      {"residual_multiplier", &ModelConfig::residual_multiplier},
      {"logits_scaling", &ModelConfig::logits_multiplier, NumberKey::Reading::kInverse},
  };
}

std::vector<SwitchKey> attention_bias_switches() {
  return {{"attention_bias", &ModelConfig::attention_bias},
          {"attention_bias", &ModelConfig::output_bias}};
}

std::vector<SwitchKey> bias_switches() {
  std::vector<SwitchKey> switches = attention_bias_switches();
  switches.push_back({"mlp_bias", &ModelConfig::mlp_bias});
  return switches;
}

std::vector<std::string_view> indexer_suffixes() {
  return {".indexer.wq_b.weight",         ".indexer.wq_b.weight_scale_inv",
          ".indexer.wk.weight",           ".indexer.wk.weight_scale_inv",
          ".indexer.k_norm.weight",       ".indexer.k_norm.bias",
          ".indexer.weights_proj.weight", ".indexer.weights_proj.weight_scale_inv"};
}

void share_parallel_norm(const Json&, ModelConfig& config) {
  config.parallel_residual = true;
  config.has_mlp_norm = false;
}

}  // namespace kvcal
