#include "descriptors/descriptor_words.h"

namespace kvcal {

const WordTable<ExpertLayers>& words(const ExpertLayers*) {
  static const WordTable<ExpertLayers> kWords{"choice of expert_layers",
                                              {{"none", ExpertLayers::kNone},
                                               {"all", ExpertLayers::kAll},
                                               {"after_first", ExpertLayers::kAfterFirst},
                                               {"typed", ExpertLayers::kTyped},
                                               {"every_step", ExpertLayers::kEveryStep},
                                               {"period", ExpertLayers::kPeriod},
                                               {"where_enabled", ExpertLayers::kWhereEnabled}}};
  return kWords;
}

const WordTable<DraftLayer>& words(const DraftLayer*) {
  static const WordTable<DraftLayer> kWords{"choice of draft",
                                            {{"none", DraftLayer::kNone},
                                             {"behind_last", DraftLayer::kBehindLast},
                                             {"mtp", DraftLayer::kMtp}}};
  return kWords;
}

const WordTable<FusedQkv>& words(const FusedQkv*) {
  static const WordTable<FusedQkv> kWords{"choice of fused_qkv",
                                          {{"concatenated", FusedQkv::kConcatenated},
                                           {"by_group", FusedQkv::kByGroup},
                                           {"four_blocks", FusedQkv::kFourBlocks}}};
  return kWords;
}

const WordTable<GroupScore>& words(const GroupScore*) {
  static const WordTable<GroupScore> kWords{"choice of group_score",
                                            {{"none", GroupScore::kNone},
                                             {"largest", GroupScore::kLargest},
                                             {"sum_of_two_largest", GroupScore::kSumOfTwoLargest}}};
  return kWords;
}

const WordTable<Layout>& words(const Layout*) {
  static const WordTable<Layout> kWords{"layout",
                                        {{"out_in", Layout::kOutIn},
                                         {"in_out", Layout::kInOut},
                                         {"in_out_interleaved", Layout::kInOutInterleaved},
                                         {"out_interleaved", Layout::kOutInterleaved}}};
  return kWords;
}

const WordTable<LocalRope>& words(const LocalRope*) {
  static const WordTable<LocalRope> kWords{"choice of local_rope",
                                           {{"same", LocalRope::kSame},
                                            {"own_theta", LocalRope::kOwnTheta},
                                            {"unscaled", LocalRope::kUnscaled}}};
  return kWords;
}

const WordTable<Mixer>& words(const Mixer*) {
  static const WordTable<Mixer> kWords{"mixer",
                                       {{"attention", Mixer::kAttention},
                                        {"mamba", Mixer::kMamba},
                                        {"mamba2", Mixer::kMamba2},
                                        {"delta_net", Mixer::kDeltaNet},
                                        {"short_convolution", Mixer::kShortConvolution},
                                        {"none", Mixer::kNone}}};
  return kWords;
}

const WordTable<NumberKey::Reading>& words(const NumberKey::Reading*) {
  static const WordTable<NumberKey::Reading> kWords{
      "reading",
      {{"as_is", NumberKey::Reading::kAsIs},
       {"inverse", NumberKey::Reading::kInverse},
       {"inverse_square_root", NumberKey::Reading::kInverseSquareRoot}}};
  return kWords;
}

const WordTable<Positions>& words(const Positions*) {
  static const WordTable<Positions> kWords{
      "choice of positions",
      {{"rope", Positions::kRope},
       {"none", Positions::kNone},
       {"learned", Positions::kLearned},
       {"sinusoidal", Positions::kSinusoidal},
       {"rope_in_sliding_layers", Positions::kRopeInSlidingLayers},
       {"rope_in_sliding_or_dense_layers", Positions::kRopeInSlidingOrDenseLayers},
       {"rope_by_layer_type", Positions::kRopeByLayerType},
       {"rope_by_layer", Positions::kRopeByLayer},
       {"rope_where_listed", Positions::kRopeWhereListed}}};
  return kWords;
}

const WordTable<Indexer>& words(const Indexer*) {
  static const WordTable<Indexer> kWords{"choice of indexer",
                                         {{"none", Indexer::kNone},
                                          {"halves", Indexer::kHalves},
                                          {"interleaved", Indexer::kInterleaved}}};
  return kWords;
}

const WordTable<QkNorm>& words(const QkNorm*) {
  static const WordTable<QkNorm> kWords{"choice of qk_norm",
                                        {{"per_head", QkNorm::kPerHead},
                                         {"per_head_own_weight", QkNorm::kPerHeadOwnWeight},
                                         {"whole", QkNorm::kWhole}}};
  return kWords;
}

const WordTable<RouterScore>& words(const RouterScore*) {
  static const WordTable<RouterScore> kWords{"choice of router_score",
                                             {{"softmax", RouterScore::kSoftmax},
                                              {"sigmoid", RouterScore::kSigmoid},
                                              {"sparse_mixer", RouterScore::kSparseMixer}}};
  return kWords;
}

const WordTable<SlidingWindow>& words(const SlidingWindow*) {
  static const WordTable<SlidingWindow> kWords{
      "choice of sliding_window",
      {{"none", SlidingWindow::kNone},
       {"all_layers", SlidingWindow::kAllLayers},
       {"all_or_typed", SlidingWindow::kAllOrTyped},
       {"pattern", SlidingWindow::kPattern},
       {"pattern_from_first", SlidingWindow::kPatternFromFirst},
       {"from_max_window_layers", SlidingWindow::kFromMaxWindowLayers},
       {"attention_types", SlidingWindow::kAttentionTypes},
       {"after_max_window_layers", SlidingWindow::kAfterMaxWindowLayers},
       {"even_below_max_window_layers", SlidingWindow::kEvenBelowMaxWindowLayers},
       {"all_where_used", SlidingWindow::kAllWhereUsed},
       {"typed", SlidingWindow::kTyped},
       {"pattern_after_dense", SlidingWindow::kPatternAfterDense},
       {"hybrid_pattern", SlidingWindow::kHybridPattern}}};
  return kWords;
}

const WordTable<Dim>& words(const Dim*) {
  static const WordTable<Dim> kWords{"dimension",
                                     {{"one", Dim::kOne},
                                      {"hidden", Dim::kHidden},
                                      {"vocab", Dim::kVocab},
                                      {"embedding_rows", Dim::kEmbeddingRows},
                                      {"positions", Dim::kPositions},
                                      {"heads", Dim::kHeads},
                                      {"kv_heads", Dim::kKvHeads},
                                      {"head_dim", Dim::kHeadDim},
                                      {"query_width", Dim::kQueryWidth},
                                      {"kv_width", Dim::kKvWidth},
                                      {"value_width", Dim::kValueWidth},
                                      {"qkv_width", Dim::kQkvWidth},
                                      {"attended_width", Dim::kAttendedWidth},
                                      {"query_and_gate_width", Dim::kQueryAndGateWidth},
                                      {"query_gate_width", Dim::kQueryGateWidth},
                                      {"mixer_heads", Dim::kMixerHeads},
                                      {"mixer_head_dim", Dim::kMixerHeadDim},
                                      {"mixer_inner", Dim::kMixerInner},
                                      {"mixer_channels", Dim::kMixerChannels},
                                      {"mixer_kernel", Dim::kMixerKernel},
                                      {"mixer_key_width", Dim::kMixerKeyWidth},
                                      {"mixer_conv_key_width", Dim::kMixerConvKeyWidth},
                                      {"mixer_conv_value_width", Dim::kMixerConvValueWidth},
                                      {"mixer_state_dim", Dim::kMixerStateDim},
                                      {"mixer_step_rank", Dim::kMixerStepRank},
                                      {"mixer_states_width", Dim::kMixerStatesWidth},
                                      {"mixer_in_width", Dim::kMixerInWidth},
                                      {"mixer_gates_width", Dim::kMixerGatesWidth},
                                      {"query_rank", Dim::kQueryRank},
                                      {"latent_rank", Dim::kLatentRank},
                                      {"latent_width", Dim::kLatentWidth},
                                      {"latent_up_width", Dim::kLatentUpWidth},
                                      {"indexer_heads", Dim::kIndexerHeads},
                                      {"indexer_head_dim", Dim::kIndexerHeadDim},
                                      {"indexer_query_width", Dim::kIndexerQueryWidth},
                                      {"intermediate", Dim::kIntermediate},
                                      {"gate_up_width", Dim::kGateUpWidth},
                                      {"experts", Dim::kExperts},
                                      {"expert_intermediate", Dim::kExpertIntermediate},
                                      {"expert_gate_up_width", Dim::kExpertGateUpWidth},
                                      {"shared_intermediate", Dim::kSharedIntermediate},
                                      {"shared_gate_up_width", Dim::kSharedGateUpWidth},
                                      {"layer_input", Dim::kLayerInput},
                                      {"layer_input_vocab", Dim::kLayerInputVocab},
                                      {"all_layer_inputs", Dim::kAllLayerInputs},
                                      {"streams", Dim::kStreams},
                                      {"stream_pairs", Dim::kStreamPairs},
                                      {"further_streams", Dim::kFurtherStreams},
                                      {"laurel_rank", Dim::kLaurelRank}}};
  return kWords;
}

const WordTable<bool ModelConfig::*>& words(bool ModelConfig::*const*) {
  static const WordTable<bool ModelConfig::*> kWords{
      "switch",
      {{"attention_bias", &ModelConfig::attention_bias},
       {"output_bias", &ModelConfig::output_bias},
       {"mlp_bias", &ModelConfig::mlp_bias},
       {"lm_head_bias", &ModelConfig::lm_head_bias},
       {"tie_word_embeddings", &ModelConfig::tie_word_embeddings},
       {"has_qk_norm", &ModelConfig::has_qk_norm},
       {"has_mlp_norm", &ModelConfig::has_mlp_norm},
       {"has_output_norms", &ModelConfig::has_output_norms},
       {"parallel_residual", &ModelConfig::parallel_residual},
       {"norm_topk_prob", &ModelConfig::norm_topk_prob},
       {"centers_norm", &ModelConfig::centers_norm},
       {"gates_whole_heads", &ModelConfig::gates_whole_heads},
       {"has_saved_names", &ModelConfig::has_saved_names},
       {"rope_is_interleaved", &ModelConfig::rope_is_interleaved},
       {"has_query_rank", &ModelConfig::has_query_rank},
       {"has_shared_expert", &ModelConfig::has_shared_expert},
       {"experts_in_out", &ModelConfig::experts_in_out},
       {"has_conv_bias", &ModelConfig::has_conv_bias},
       {"mixer_bias", &ModelConfig::mixer_bias},
       {"mixer_output_bias", &ModelConfig::mixer_output_bias},
       {"has_mixer_norm", &ModelConfig::has_mixer_norm},
       {"norms_before_gate", &ModelConfig::norms_before_gate},
       {"multi_query", &ModelConfig::multi_query},
       {"new_decoder_architecture", &ModelConfig::new_decoder_architecture},
       {"has_parallel_norms", &ModelConfig::has_parallel_norms},
       {"has_layer_inputs", &ModelConfig::has_layer_inputs},
       {"scales_active_stream", &ModelConfig::scales_active_stream}}};
  return kWords;
}

const WordTable<float ModelConfig::*>& words(float ModelConfig::*const*) {
  static const WordTable<float ModelConfig::*> kWords{
      "number",
      {{"norm_eps", &ModelConfig::norm_eps},
       {"activation_limit", &ModelConfig::activation_limit},
       {"embedding_multiplier", &ModelConfig::embedding_multiplier},
       {"residual_multiplier", &ModelConfig::residual_multiplier},
       {"logits_multiplier", &ModelConfig::logits_multiplier},
       {"head_input_multiplier", &ModelConfig::head_input_multiplier},
       {"attention_input_multiplier", &ModelConfig::attention_input_multiplier},
       {"attention_output_multiplier", &ModelConfig::attention_output_multiplier},
       {"mixer_input_multiplier", &ModelConfig::mixer_input_multiplier},
       {"mixer_output_multiplier", &ModelConfig::mixer_output_multiplier},
       {"mlp_output_multiplier", &ModelConfig::mlp_output_multiplier},
       {"key_multiplier", &ModelConfig::key_multiplier},
       {"gate_multiplier", &ModelConfig::gate_multiplier},
       {"softmax_scale", &ModelConfig::softmax_scale},
       {"attention_softcap", &ModelConfig::attention_softcap},
       {"logits_softcap", &ModelConfig::logits_softcap},
       {"routed_scaling_factor", &ModelConfig::routed_scaling_factor},
       {"qkv_limit", &ModelConfig::qkv_limit},
       {"value_multiplier", &ModelConfig::value_multiplier},
       {"router_jitter", &ModelConfig::router_jitter}}};
  return kWords;
}

const WordTable<bool LayerConfig::*>& words(bool LayerConfig::*const*) {
  static const WordTable<bool LayerConfig::*> kWords{
      "switch",
      {{"has_attention", &LayerConfig::has_attention},
       {"has_recurrence", &LayerConfig::has_recurrence},
       {"has_mixer", &LayerConfig::has_mixer},
       {"has_window", &LayerConfig::has_window},
       {"has_own_cache", &LayerConfig::has_own_cache},
       {"has_value_projection", &LayerConfig::has_value_projection},
       {"has_mlp", &LayerConfig::has_mlp},
       {"is_moe", &LayerConfig::is_moe},
       {"norms_heads", &LayerConfig::norms_heads},
       {"has_indexer", &LayerConfig::has_indexer}}};
  return kWords;
}

const WordTable<Role>& words(const Role*) {
  static const WordTable<Role> kWords = [] {
    WordTable<Role> table{"role", {}};
    for (const RoleRow& row : role_rows())
      if (row.group != "drafts") table.rows.emplace_back(row.name, row.role);
    return table;
  }();
  return kWords;
}

std::vector<std::string> hook_names() {
  std::vector<std::string> names;
  for (const Architecture& family : architectures())
    if (family.resolve) names.emplace_back(family.name);
  return names;
}

}  // namespace kvcal
