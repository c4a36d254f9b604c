#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kvcal {

/// Use of a tensor in the forward pass. A fused tensor has a role of its own and holds several
/// others. role_rows() has one row for each, in this order.
enum class Role : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kLayerInputEmbedding,   ///< of all layers, one behind the other
  kLayerInputProjection,  ///< of the token's embedding, to the inputs of all layers
  kLayerInputNorm,
  kStreamProjection,  ///< of the embedding, to each further residual stream
  kStreamOutput,      ///< of each further stream, whose mean with the first is normed last
  kFinalNorm,
  kFinalNormBias,
  kLmHead,
  kLmHeadBias,
  // Norms around attention and MLP. Output norms act before the residual is added.
  kInputNorm,
  kInputNormBias,
  kAttentionOutputNorm,
  kMlpNorm,
  kMlpNormBias,
  kMlpOutputNorm,
  kQueryNorm,
  kQueryNormBias,
  kKeyNorm,
  kKeyNormBias,
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
  // The indexer of sparse attention, which selects the keys that attention reads.
  kIndexerQuery,
  kIndexerKey,
  kIndexerKeyNorm,
  kIndexerKeyNormBias,
  kIndexerWeights,  ///< of the heads' scores
  // Recurrent mixers.
  kMixerIn,
  kMixerInBias,
  kMixerQuery,  ///< a delta net's queries, keys and values, where kMixerIn does not hold them
  kMixerKey,
  kMixerValue,
  kMixerGates,  ///< update strengths (beta) and decays of a delta net
  kMixerZ,      ///< a delta net's gates of the output, where they are no rows of kMixerIn
  kMixerBeta,   ///< its update strengths, where kMixerGates does not hold them
  kMixerAlpha,  ///< its decays, likewise
  kMixerConv,
  kMixerConvBias,
  kMixerConvQuery,  ///< a delta net's convolution in three parts
  kMixerConvKey,
  kMixerConvValue,
  kMixerStates,    ///< Mamba 1: low-rank step sizes, B and C from the convolved channels
  kMixerStep,      ///< Mamba 1: step sizes from their low rank
  kMixerStepNorm,  ///< Jamba's norms of step sizes, B and C
  kMixerBNorm,
  kMixerCNorm,
  kMixerStepBias,
  kMixerDecay,  ///< log of the negative decay
  kMixerSkip,
  kMixerNorm,
  kMixerOut,
  kMixerOutBias,
  // MLP. Without kGate and kGateUp the MLP is up, activation, down.
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kGateUp,
  // Numbers of xIELU, one each; see ActivationFunction. The alphas are stored before a softplus.
  kActivationAlphaP,
  kActivationAlphaN,
  kActivationBeta,
  kActivationEps,
  // Mixture of experts.
  kRouter,
  kRouterBias,
  kRouterCorrection,  ///< added to the scores that choose experts, not to their weights
  kRouterNorm,        ///< weight of the norm of the router's input
  kExpertScale,       ///< factor of each expert's weight
  kExpertNorm,        ///< before experts beside an MLP
  kExpertOutputNorm,
  kMlpBesideNorm,  ///< behind the MLP beside them
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
  kSharedExpertGate,  ///< one logit a token; its sigmoid multiplies the shared expert's output
  // Input of a draft layer: kDraftProjection of [norm of the next token's embedding, norm of the
  // hidden state].
  kDraftEmbeddingNorm,
  kDraftHiddenNorm,
  kDraftProjection,
  // A layer's own embedding, gated by the residual stream at the layer's end.
  kLayerInputGate,
  kLayerInputOutput,
  kLayerInputOutputNorm,
  // Parallel residual streams (AltUp): a router's tanh makes the coefficients that mix them before
  // the layer, and those by which they follow the layer's change of the active one.
  kStreamRouter,
  kStreamRouterNorm,
  kStreamPrediction,
  kStreamCorrection,
  kStreamScale,  ///< of the active stream, where the layer's own input is gated by it
  // A residual of low rank beside attention (Laurel).
  kLaurelDown,
  kLaurelUp,
  kLaurelNorm,
  kLayerScalar,  ///< factor of the residual stream at the layer's end
};

/// Classes of tensors with similar values, from which lib/synth draws random ones.
enum class TensorClass : uint8_t {
  kMatrix,
  kOutputMatrix,  ///< its product is added to the residual
  kLatentUp,      ///< a matrix that compensates the gains of the latent's norm
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
  kActivationBeta,  ///< constants of xIELU
  kActivationEps,
};

/// Properties of one role.
struct RoleRow {
  Role role{};
  std::string_view name;   ///< as `inspect --tensors` prints it
  std::string_view group;  ///< name under which sizes are summed: "attention", "norms"
  TensorClass tensor_class = TensorClass::kMatrix;
  /// Roles whose rows a fused tensor holds: one after the other, except kQueryKeyValue (see
  /// Architecture::fused_qkv) and kQueryAndGate (head by head).
  std::vector<Role> holds = {};
  /// Role that stands for the input of a Linear: Linears with the same input name the same one.
  /// nullopt: the row's own role, or that of the first it holds.
  std::optional<Role> input = {};
};

/// All roles, in the order of Role.
const std::vector<RoleRow>& role_rows();
const RoleRow& row_of(Role role);

/// Role under which observations report the input of a Linear with this role.
Role input_of(Role role);

/// The fused tensors that may hold a role.
std::vector<Role> fused_roles_of(Role role);

}  // namespace kvcal
