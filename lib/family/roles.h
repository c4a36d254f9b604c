#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kvcal {

/// The use that the forward pass has for a tensor. A fused tensor has a role of its own and holds
/// several others. role_rows() has one row for each, in this order.
enum class Role : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kFinalNorm,
  kFinalNormBias,
  kLmHead,
  kLmHeadBias,
  // Norms around attention and MLP. Those on the output act before the residual is added.
  kInputNorm,
  kInputNormBias,
  kAttentionOutputNorm,
  kMlpNorm,
  kMlpNormBias,
  kMlpOutputNorm,
  kQueryNorm,
  kKeyNorm,
  // Attention.
  kQuery,
  kKey,
  kValue,
  kOutput,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputBias,
  kSinks,
  kQueryGate,
  kQueryAndGate,
  kQueryKeyValue,
  kQueryKeyValueBias,
  // Latent attention (MLA).
  kQueryDown,
  kQueryDownBias,
  kQueryDownNorm,
  kQueryUp,
  kLatent,
  kLatentBias,
  kLatentNorm,
  kLatentUp,
  // Recurrent mixers.
  kMixerIn,
  kMixerInBias,
  kMixerGates,  ///< a delta net's strengths and decays
  kMixerConv,
  kMixerConvBias,
  kMixerStates,    ///< Mamba 1: step sizes' low rank, B and C of the convolved channels
  kMixerStep,      ///< Mamba 1: step sizes from their low rank
  kMixerStepNorm,  ///< Jamba's norms of the three
  kMixerBNorm,
  kMixerCNorm,
  kMixerStepBias,
  kMixerDecay,  ///< log of the negative decay
  kMixerSkip,
  kMixerNorm,
  kMixerOut,
  kMixerOutBias,
  // MLP. Without kGate and kGateUp it is up, activation, down.
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kGateUp,
  // Mixture of experts.
  kRouter,
  kRouterBias,
  kRouterCorrection,  ///< added to the scores that choose, not to those that weigh
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateUp,
  kExpertGateBias,
  kExpertUpBias,
  kExpertGateUpBias,
  kExpertDownBias,
  kSharedGate,
  kSharedUp,
  kSharedGateUp,
  kSharedDown,
  kSharedExpertGate,  ///< one logit a token; its sigmoid weighs the shared expert
};

/// Tensors whose values are alike, by which lib/synth spreads random ones.
enum class TensorClass : uint8_t {
  kMatrix,
  kOutputMatrix,  ///< its product is added to the residual
  kLatentUp,      ///< a matrix that undoes the gains of the latent's norm
  kEmbedding,
  kNorm,
  kOutputNorm,  ///< its output is added to the residual
  kMixerNorm,   ///< weights near 1, also in families that store w for 1 + w
  kCorrection,  ///< small values around 0
  kBias,
  kOutputBias,  ///< added to the residual
  kSinks,
  kStepBias,
  kLogDecay,
};

/// The facts of one role.
struct RoleRow {
  Role role{};
  std::string_view name;   ///< as `inspect --tensors` prints it
  std::string_view group;  ///< tensors whose sizes are added up: "attention", "norms"
  TensorClass tensor_class = TensorClass::kMatrix;
  /// The roles of which a fused tensor has rows: one after the other, but for kQueryKeyValue as
  /// Architecture::fused_qkv says and for kQueryAndGate head by head.
  std::vector<Role> holds = {};
  /// Linears that read the same input name one role for it; nullopt: the row's own, or that of the
  /// first it holds.
  std::optional<Role> input = {};
};

/// All roles, in the order of Role.
const std::vector<RoleRow>& role_rows();
const RoleRow& row_of(Role role);

/// The role that observations name for the input of a Linear with this role.
Role input_of(Role role);

/// The fused tensors that may hold a role.
std::vector<Role> fused_roles_of(Role role);

}  // namespace kvcal
