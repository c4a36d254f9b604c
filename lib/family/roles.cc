#include "family/roles.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {

const std::vector<RoleRow>& role_rows() {
  using enum Role;
  using Class = TensorClass;
  static const std::vector<RoleRow> kRows{
      {kEmbedding, "embedding", "embeddings", Class::kEmbedding},
      {kPositionEmbedding, "position_embedding", "embeddings", Class::kEmbedding},
      {kLayerInputEmbedding, "layer_input_embedding", "embeddings", Class::kEmbedding},
      {kLayerInputProjection, "layer_input_projection", "layer inputs"},
      {kLayerInputNorm, "layer_input_norm", "norms", Class::kNorm},
      {kStreamProjection, "stream_projection", "residual streams"},
      {kStreamOutput, "stream_output", "residual streams"},
      {kFinalNorm, "final_norm", "norms", Class::kNorm},
      {kFinalNormBias, "final_norm_bias", "norms", Class::kCorrection},
      {kLmHead, "lm_head", "lm_head"},
      {kLmHeadBias, "lm_head_bias", "lm_head", Class::kBias},
      {kInputNorm, "input_norm", "norms", Class::kNorm},
      {kInputNormBias, "input_norm_bias", "norms", Class::kCorrection},
      {kAttentionOutputNorm, "attention_output_norm", "norms", Class::kOutputNorm},
      {kMlpNorm, "mlp_norm", "norms", Class::kNorm},
      {kMlpNormBias, "mlp_norm_bias", "norms", Class::kCorrection},
      {kMlpOutputNorm, "mlp_output_norm", "norms", Class::kOutputNorm},
      {kQueryNorm, "query_norm", "norms", Class::kNorm},
      {kQueryNormBias, "query_norm_bias", "norms", Class::kCorrection},
      {kKeyNorm, "key_norm", "norms", Class::kNorm},
      {kKeyNormBias, "key_norm_bias", "norms", Class::kCorrection},
      {kQuery, "query", "attention"},
      {kKey, "key", "attention", Class::kMatrix, {}, kQuery},
      {kValue, "value", "attention", Class::kMatrix, {}, kQuery},
      {kOutput, "output", "attention", Class::kOutputMatrix},
      {kQueryBias, "query_bias", "attention", Class::kBias},
      {kKeyBias, "key_bias", "attention", Class::kBias},
      {kValueBias, "value_bias", "attention", Class::kBias},
      {kOutputBias, "output_bias", "attention", Class::kOutputBias},
      {kSinks, "sinks", "attention", Class::kSinks},
      {kQueryGate, "query_gate", "attention", Class::kMatrix, {}, kQuery},
      {kQueryAndGate, "query_and_gate", "attention", Class::kMatrix, {kQuery, kQueryGate}},
      {kQueryKeyValue, "query_key_value", "attention", Class::kMatrix, {kQuery, kKey, kValue}},
      {kQueryKeyValueBias,
       "query_key_value_bias",
       "attention",
       Class::kBias,
       {kQueryBias, kKeyBias, kValueBias}},
      {kQueryDown, "query_down", "attention", Class::kMatrix, {}, kQuery},
      {kQueryDownBias, "query_down_bias", "attention", Class::kBias},
      {kQueryDownNorm, "query_down_norm", "norms", Class::kNorm},
      {kQueryUp, "query_up", "attention"},
      {kLatent, "latent", "attention", Class::kMatrix, {}, kQuery},
      {kLatentBias, "latent_bias", "attention", Class::kBias},
      {kLatentNorm, "latent_norm", "norms", Class::kNorm},
      {kLatentUp, "latent_up", "attention", Class::kLatentUp},
      {kIndexerQuery, "indexer_query", "attention", Class::kMatrix, {}, kQueryUp},
      {kIndexerKey, "indexer_key", "attention", Class::kMatrix, {}, kQuery},
      {kIndexerKeyNorm, "indexer_key_norm", "norms", Class::kNorm},
      {kIndexerKeyNormBias, "indexer_key_norm_bias", "norms", Class::kCorrection},
      {kIndexerWeights, "indexer_weights", "attention", Class::kMatrix, {}, kQuery},
      {kMixerIn, "mixer_in", "recurrent mixers"},
      {kMixerInBias, "mixer_in_bias", "recurrent mixers", Class::kBias},
      {kMixerQuery, "mixer_query", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerKey, "mixer_key", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerValue, "mixer_value", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerGates, "mixer_gates", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerZ, "mixer_z", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerBeta, "mixer_beta", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerAlpha, "mixer_alpha", "recurrent mixers", Class::kMatrix, {}, kMixerIn},
      {kMixerConv, "mixer_conv", "recurrent mixers"},
      {kMixerConvBias, "mixer_conv_bias", "recurrent mixers", Class::kBias},
      {kMixerConvQuery, "mixer_conv_query", "recurrent mixers"},
      {kMixerConvKey, "mixer_conv_key", "recurrent mixers"},
      {kMixerConvValue, "mixer_conv_value", "recurrent mixers"},
      {kMixerStates, "mixer_states", "recurrent mixers"},
      {kMixerStep, "mixer_step", "recurrent mixers"},
      {kMixerStepNorm, "mixer_step_norm", "norms", Class::kMixerNorm},
      {kMixerBNorm, "mixer_b_norm", "norms", Class::kMixerNorm},
      {kMixerCNorm, "mixer_c_norm", "norms", Class::kMixerNorm},
      {kMixerStepBias, "mixer_step_bias", "recurrent mixers", Class::kStepBias},
      {kMixerDecay, "mixer_decay", "recurrent mixers", Class::kLogDecay},
      {kMixerSkip, "mixer_skip", "recurrent mixers", Class::kMixerNorm},
      {kMixerNorm, "mixer_norm", "norms", Class::kMixerNorm},
      {kMixerOut, "mixer_out", "recurrent mixers", Class::kOutputMatrix},
      {kMixerOutBias, "mixer_out_bias", "recurrent mixers", Class::kOutputBias},
      {kGate, "gate", "MLP", Class::kMatrix, {}, kUp},
      {kUp, "up", "MLP"},
      {kDown, "down", "MLP", Class::kOutputMatrix},
      {kGateBias, "gate_bias", "MLP", Class::kBias},
      {kUpBias, "up_bias", "MLP", Class::kBias},
      {kDownBias, "down_bias", "MLP", Class::kOutputBias},
      {kGateUp, "gate_up", "MLP", Class::kMatrix, {kGate, kUp}},
      {kActivationAlphaP, "activation_alpha_p", "MLP", Class::kCorrection},
      {kActivationAlphaN, "activation_alpha_n", "MLP", Class::kCorrection},
      {kActivationBeta, "activation_beta", "MLP", Class::kActivationBeta},
      {kActivationEps, "activation_eps", "MLP", Class::kActivationEps},
      {kRouter, "router", "routers"},
      {kRouterBias, "router_bias", "routers", Class::kBias},
      {kRouterCorrection, "router_correction", "routers", Class::kCorrection},
      {kRouterNorm, "router_norm", "norms", Class::kNorm},
      {kExpertScale, "expert_scale", "routers", Class::kMixerNorm},
      {kExpertNorm, "expert_norm", "norms", Class::kNorm},
      {kExpertOutputNorm, "expert_output_norm", "norms", Class::kNorm},
      {kMlpBesideNorm, "mlp_beside_norm", "norms", Class::kNorm},
      {kExpertGate, "expert_gate", "experts", Class::kMatrix, {}, kExpertUp},
      {kExpertUp, "expert_up", "experts"},
      {kExpertDown, "expert_down", "experts", Class::kOutputMatrix},
      {kExpertGateUp, "expert_gate_up", "experts", Class::kMatrix, {kExpertGate, kExpertUp}},
      {kExpertGateBias, "expert_gate_bias", "experts", Class::kBias},
      {kExpertUpBias, "expert_up_bias", "experts", Class::kBias},
      {kExpertGateUpBias,
       "expert_gate_up_bias",
       "experts",
       Class::kBias,
       {kExpertGateBias, kExpertUpBias}},
      {kExpertDownBias, "expert_down_bias", "experts", Class::kOutputBias},
      {kSharedGate, "shared_gate", "shared experts", Class::kMatrix, {}, kSharedUp},
      {kSharedUp, "shared_up", "shared experts"},
      {kSharedGateUp, "shared_gate_up", "shared experts", Class::kMatrix, {kSharedGate, kSharedUp}},
      {kSharedDown, "shared_down", "shared experts", Class::kOutputMatrix},
      {kSharedExpertGate, "shared_expert_gate", "shared experts", Class::kMatrix, {}, kRouter},
      {kDraftEmbeddingNorm, "draft_embedding_norm", "drafts", Class::kNorm},
      {kDraftHiddenNorm, "draft_hidden_norm", "drafts", Class::kNorm},
      {kDraftProjection, "draft_projection", "drafts"},
      {kLayerInputGate, "layer_input_gate", "layer inputs"},
      {kLayerInputOutput, "layer_input_output", "layer inputs", Class::kOutputMatrix},
      {kLayerInputOutputNorm, "layer_input_output_norm", "norms", Class::kOutputNorm},
      {kStreamRouter, "stream_router", "residual streams"},
      {kStreamRouterNorm, "stream_router_norm", "norms", Class::kNorm},
      {kStreamPrediction, "stream_prediction", "residual streams", Class::kOutputMatrix},
      {kStreamCorrection, "stream_correction", "residual streams", Class::kOutputMatrix},
      {kStreamScale, "stream_scale", "norms", Class::kMixerNorm},
      {kLaurelDown, "laurel_down", "attention", Class::kMatrix, {}, kQuery},
      {kLaurelUp, "laurel_up", "attention"},
      {kLaurelNorm, "laurel_norm", "norms", Class::kOutputNorm},
      {kLayerScalar, "layer_scalar", "norms", Class::kMixerNorm},
  };
  return kRows;
}

const RoleRow& row_of(Role role) {
  const RoleRow& row = role_rows().at(static_cast<size_t>(role));
  KVCAL_CHECK(row.role == role);
  return row;
}

Role input_of(Role role) {
  const RoleRow& row = row_of(role);
  return row.input ? *row.input : row.holds.empty() ? role : input_of(row.holds.front());
}

std::vector<Role> fused_roles_of(Role role) {
  std::vector<Role> fused;
  for (const RoleRow& row : role_rows())
    if (std::ranges::find(row.holds, role) != row.holds.end()) fused.push_back(row.role);
  return fused;
}

}  // namespace kvcal
