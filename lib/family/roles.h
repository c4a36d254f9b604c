#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "family/dims.h"
#include "family/model_config.h"
#include "family/words.h"

namespace kvcal {

/// Use of a tensor in the forward pass: its group, class and usual shape, the role that stands for
/// its input, and the roles that a fused tensor holds; see RoleRow.
#define KVCAL_ROLES(ROLE)                                                                          \
  ROLE(kEmbedding, "embeddings", Class::kEmbedding, {kVocab, kEmbeddingWidth})                     \
  /* from the embedding to the residual stream, and back behind the final norm */                  \
  ROLE(kEmbeddingIn, "embeddings", Class::kMatrix, {kHidden, kEmbeddingWidth})                     \
  ROLE(kEmbeddingOut, "embeddings", Class::kMatrix, {kEmbeddingWidth, kHidden})                    \
  ROLE(kEmbeddingNorm, "norms", Class::kNorm, {kHidden})                                           \
  ROLE(kEmbeddingNormBias, "norms", Class::kCorrection, {kHidden})                                 \
  ROLE(kPositionEmbedding, "embeddings", Class::kEmbedding, {kPositions, kHidden})                 \
  /* of all layers, one behind the other */                                                        \
  ROLE(kLayerInputEmbedding, "embeddings", Class::kEmbedding, {kLayerInputVocab, kAllLayerInputs}) \
  /* of the token's embedding, to the inputs of all layers */                                      \
  ROLE(kLayerInputProjection, "layer inputs", Class::kMatrix, {kAllLayerInputs, kHidden})          \
  ROLE(kLayerInputNorm, "norms", Class::kNorm, {kLayerInput})                                      \
  /* of the embedding, to each further residual stream */                                          \
  ROLE(kStreamProjection, "residual streams", Class::kMatrix, {kHidden, kHidden})                  \
  /* of each further stream, whose mean with the first is normed last */                           \
  ROLE(kStreamOutput, "residual streams", Class::kMatrix, {kHidden, kHidden})                      \
  /* of all streams, where gates mix them into the input of lm_head */                             \
  ROLE(kFinalMixNorm, "norms", Class::kNorm, {kStreamsWidth})                                      \
  ROLE(kFinalMixDown, "residual streams", Class::kMatrix, {kStreamMixRank, kStreamsWidth})         \
  ROLE(kFinalMixUp, "residual streams", Class::kMatrix, {kStreamsWidth, kStreamMixRank})           \
  /* of the residual sums that the input of lm_head attends over: a norm, and a vector that */     \
  /* scores what it gives */                                                                       \
  ROLE(kFinalSumNorm, "norms", Class::kNorm, {kHidden})                                            \
  ROLE(kFinalSumScore, "residual streams", Class::kMatrix, {kOne, kHidden})                        \
  ROLE(kFinalNorm, "norms", Class::kNorm, {kHidden})                                               \
  ROLE(kFinalNormBias, "norms", Class::kCorrection, {kHidden})                                     \
  ROLE(kLmHead, "lm_head", Class::kMatrix, {kOutputVocab, kEmbeddingWidth})                        \
  ROLE(kLmHeadBias, "lm_head", Class::kBias, {kOutputVocab})                                       \
  /* Norms around attention and MLP. Output norms act before the residual is added. */             \
  ROLE(kInputNorm, "norms", Class::kNorm, {kHidden})                                               \
  ROLE(kInputNormBias, "norms", Class::kCorrection, {kHidden})                                     \
  ROLE(kAttentionOutputNorm, "norms", Class::kOutputNorm, {kHidden})                               \
  ROLE(kMlpNorm, "norms", Class::kNorm, {kHidden})                                                 \
  ROLE(kMlpNormBias, "norms", Class::kCorrection, {kHidden})                                       \
  ROLE(kMlpOutputNorm, "norms", Class::kOutputNorm, {kHidden})                                     \
  /* of the residual stream itself, at the layer's end */                                          \
  ROLE(kStreamNorm, "norms", Class::kNorm, {kHidden})                                              \
  ROLE(kStreamNormBias, "norms", Class::kCorrection, {kHidden})                                    \
  ROLE(kQueryNorm, "norms", Class::kNorm, {kHeadDim})                                              \
  ROLE(kQueryNormBias, "norms", Class::kCorrection, {kHeadDim})                                    \
  ROLE(kKeyNorm, "norms", Class::kNorm, {kHeadDim})                                                \
  ROLE(kKeyNormBias, "norms", Class::kCorrection, {kHeadDim})                                      \
  /* Attention. */                                                                                 \
  ROLE(kQuery, "attention", Class::kMatrix, {kQueryWidth, kHidden})                                \
  ROLE(kKey, "attention", Class::kMatrix, {kKvWidth, kHidden}, Role::kQuery)                       \
  ROLE(kValue, "attention", Class::kMatrix, {kValueWidth, kHidden}, Role::kQuery)                  \
  ROLE(kOutput, "attention", Class::kOutputMatrix, {kHidden, kAttendedWidth})                      \
  ROLE(kQueryBias, "attention", Class::kBias, {kQueryWidth})                                       \
  ROLE(kKeyBias, "attention", Class::kBias, {kKvWidth})                                            \
  ROLE(kValueBias, "attention", Class::kBias, {kValueWidth})                                       \
  ROLE(kOutputBias, "attention", Class::kOutputBias, {kHidden})                                    \
  /* of the output of attention, before its projection */                                          \
  ROLE(kAttendedNorm, "norms", Class::kNorm, {kAttendedWidth})                                     \
  ROLE(kSinks, "attention", Class::kSinks, {kHeads})                                               \
  /* states of each query for logits by distance, and the table of these */                        \
  ROLE(kRelative, "attention", Class::kMatrix, {kRelativeWidth, kHidden}, Role::kQuery)            \
  ROLE(kRelativeTable, "attention", Class::kMatrix, {kRelativeRank, kRelativeExtent})              \
  /* Convolutions over a few tokens, added to their inputs: of K and V before their norms, and */  \
  /* of the outputs of attention and MLP. */                                                       \
  ROLE(kKeyConv, "attention", Class::kMatrix, {kKvWidth, kOne, kShortKernel})                      \
  ROLE(kValueConv, "attention", Class::kMatrix, {kValueWidth, kOne, kShortKernel})                 \
  ROLE(kAttentionOutputConv, "attention", Class::kMatrix, {kHidden, kOne, kShortKernel})           \
  ROLE(kMlpOutputConv, "MLP", Class::kMatrix, {kHidden, kOne, kShortKernel})                       \
  ROLE(kQueryGate, "attention", Class::kMatrix, {kQueryWidth, kHidden}, Role::kQuery)              \
  ROLE(kQueryGateBias, "attention", Class::kBias, {kQueryWidth})                                   \
  ROLE(kQueryAndGate, "attention", Class::kMatrix, {kQueryAndGateWidth, kHidden}, {},              \
       {Role::kQuery, Role::kQueryGate})                                                           \
  ROLE(kQueryAndGateBias, "attention", Class::kBias, {kQueryAndGateWidth}, {},                     \
       {Role::kQueryBias, Role::kQueryGateBias})                                                   \
  ROLE(kQueryKeyValue, "attention", Class::kMatrix, {kQkvWidth, kHidden}, {},                      \
       {Role::kQuery, Role::kKey, Role::kValue})                                                   \
  ROLE(kQueryKeyValueBias, "attention", Class::kBias, {kQkvWidth}, {},                             \
       {Role::kQueryBias, Role::kKeyBias, Role::kValueBias})                                       \
  /* Latent attention (MLA). */                                                                    \
  ROLE(kQueryDown, "attention", Class::kMatrix, {kQueryRank, kHidden}, Role::kQuery)               \
  ROLE(kQueryDownBias, "attention", Class::kBias, {kQueryRank})                                    \
  ROLE(kQueryDownNorm, "norms", Class::kNorm, {kQueryRank})                                        \
  ROLE(kQueryUp, "attention", Class::kMatrix, {kQueryWidth, kQueryRank})                           \
  ROLE(kLatent, "attention", Class::kMatrix, {kLatentWidth, kHidden}, Role::kQuery)                \
  ROLE(kLatentBias, "attention", Class::kBias, {kLatentWidth})                                     \
  ROLE(kLatentNorm, "norms", Class::kNorm, {kLatentRank})                                          \
  /* of the rotated key, before it turns */                                                        \
  ROLE(kLatentKeyNorm, "norms", Class::kNorm, {kLatentKeyDim})                                     \
  ROLE(kLatentUp, "attention", Class::kLatentUp, {kLatentUpWidth, kLatentRank})                    \
  /* The indexer of sparse attention, which selects the keys that attention reads. */              \
  ROLE(kIndexerQuery, "attention", Class::kMatrix, {kIndexerQueryWidth, kQueryRank},               \
       Role::kQueryUp)                                                                             \
  ROLE(kIndexerKey, "attention", Class::kMatrix, {kIndexerHeadDim, kHidden}, Role::kQuery)         \
  ROLE(kIndexerQueryKey, "attention", Class::kMatrix, {kIndexerQueryKeyWidth, kHidden},            \
       Role::kQuery, {Role::kIndexerQuery, Role::kIndexerKey})                                     \
  ROLE(kIndexerQueryNorm, "norms", Class::kNorm, {kIndexerHeadDim})                                \
  ROLE(kIndexerKeyNorm, "norms", Class::kNorm, {kIndexerHeadDim})                                  \
  ROLE(kIndexerKeyNormBias, "norms", Class::kCorrection, {kIndexerHeadDim})                        \
  /* of the heads' scores */                                                                       \
  ROLE(kIndexerWeights, "attention", Class::kMatrix, {kIndexerHeads, kHidden}, Role::kQuery)       \
  /* Recurrent mixers. */                                                                          \
  ROLE(kMixerIn, "recurrent mixers", Class::kMatrix, {kMixerInWidth, kHidden})                     \
  ROLE(kMixerInBias, "recurrent mixers", Class::kBias, {kMixerInWidth})                            \
  /* a delta net's queries, keys and values, where kMixerIn does not hold them */                  \
  ROLE(kMixerQuery, "recurrent mixers", Class::kMatrix, {kMixerKeyWidth, kHidden}, Role::kMixerIn) \
  ROLE(kMixerKey, "recurrent mixers", Class::kMatrix, {kMixerKeyWidth, kHidden}, Role::kMixerIn)   \
  ROLE(kMixerValue, "recurrent mixers", Class::kMatrix, {kMixerInner, kHidden}, Role::kMixerIn)    \
  /* update strengths (beta) and decays of a delta net */                                          \
  ROLE(kMixerGates, "recurrent mixers", Class::kMatrix, {kMixerGatesWidth, kHidden},               \
       Role::kMixerIn)                                                                             \
  /* a delta net's gates of the output, where they are no rows of kMixerIn */                      \
  ROLE(kMixerZ, "recurrent mixers", Class::kMatrix, {kMixerInner, kHidden}, Role::kMixerIn)        \
  /* its update strengths, where kMixerGates does not hold them */                                 \
  ROLE(kMixerBeta, "recurrent mixers", Class::kMatrix, {kMixerHeads, kHidden}, Role::kMixerIn)     \
  /* its decays by key, likewise */                                                                \
  ROLE(kMixerKeyDecays, "recurrent mixers", Class::kMatrix, {kMixerKeyWidth, kHidden},             \
       Role::kMixerIn)                                                                             \
  /* its gates of the output and its decays by key, each through a low rank */                     \
  ROLE(kMixerZDown, "recurrent mixers", Class::kMatrix, {kMixerGateRank, kHidden}, Role::kMixerIn) \
  ROLE(kMixerZUp, "recurrent mixers", Class::kMatrix, {kMixerInner, kMixerGateRank})               \
  ROLE(kMixerAlphaDown, "recurrent mixers", Class::kMatrix, {kMixerDecayRank, kHidden},            \
       Role::kMixerIn)                                                                             \
  ROLE(kMixerAlphaUp, "recurrent mixers", Class::kMatrix, {kMixerKeyWidth, kMixerDecayRank})       \
  /* all of a delta net's, one behind the other */                                                 \
  ROLE(kMixerAll, "recurrent mixers", Class::kMatrix, {kMixerAllWidth, kHidden}, {},               \
       {Role::kMixerQuery, Role::kMixerKey, Role::kMixerValue, Role::kMixerZ, Role::kMixerBeta,    \
        Role::kMixerAlpha})                                                                        \
  /* its decays, likewise */                                                                       \
  ROLE(kMixerAlpha, "recurrent mixers", Class::kMatrix, {kMixerHeads, kHidden}, Role::kMixerIn)    \
  ROLE(kMixerConv, "recurrent mixers", Class::kMatrix, {kMixerChannels, kOne, kMixerKernel})       \
  ROLE(kMixerConvBias, "recurrent mixers", Class::kBias, {kMixerChannels})                         \
  /* a delta net's convolution in three parts */                                                   \
  ROLE(kMixerConvQuery, "recurrent mixers", Class::kMatrix,                                        \
       {kMixerConvKeyWidth, kOne, kMixerKernel})                                                   \
  ROLE(kMixerConvKey, "recurrent mixers", Class::kMatrix,                                          \
       {kMixerConvKeyWidth, kOne, kMixerKernel})                                                   \
  ROLE(kMixerConvValue, "recurrent mixers", Class::kMatrix,                                        \
       {kMixerConvValueWidth, kOne, kMixerKernel})                                                 \
  /* Mamba 1: low-rank step sizes, B and C from the convolved channels */                          \
  ROLE(kMixerStates, "recurrent mixers", Class::kMatrix, {kMixerStatesWidth, kMixerInner})         \
  /* Mamba 1: step sizes from their low rank */                                                    \
  ROLE(kMixerStep, "recurrent mixers", Class::kMatrix, {kMixerInner, kMixerStepRank})              \
  /* Jamba's norms of step sizes, B and C */                                                       \
  ROLE(kMixerStepNorm, "norms", Class::kMixerNorm, {kMixerStepRank})                               \
  ROLE(kMixerBNorm, "norms", Class::kMixerNorm, {kMixerStateDim})                                  \
  ROLE(kMixerCNorm, "norms", Class::kMixerNorm, {kMixerStateDim})                                  \
  ROLE(kMixerStepBias, "recurrent mixers", Class::kStepBias, {kMixerHeads})                        \
  /* log of the negative decay */                                                                  \
  ROLE(kMixerDecay, "recurrent mixers", Class::kLogDecay, {kMixerHeads})                           \
  ROLE(kMixerSkip, "recurrent mixers", Class::kMixerNorm, {kMixerHeads})                           \
  ROLE(kMixerNorm, "norms", Class::kMixerNorm, {kMixerInner})                                      \
  ROLE(kMixerOut, "recurrent mixers", Class::kOutputMatrix, {kHidden, kMixerInner})                \
  ROLE(kMixerOutBias, "recurrent mixers", Class::kOutputBias, {kHidden})                           \
  /* MLP. Without kGate and kGateUp the MLP is up, activation, down. */                            \
  ROLE(kGate, "MLP", Class::kMatrix, {kIntermediate, kHidden}, Role::kUp)                          \
  ROLE(kUp, "MLP", Class::kMatrix, {kIntermediate, kHidden})                                       \
  ROLE(kDown, "MLP", Class::kOutputMatrix, {kHidden, kIntermediate})                               \
  ROLE(kGateBias, "MLP", Class::kBias, {kIntermediate})                                            \
  ROLE(kUpBias, "MLP", Class::kBias, {kIntermediate})                                              \
  ROLE(kDownBias, "MLP", Class::kOutputBias, {kHidden})                                            \
  /* of the activated inner rows */                                                                \
  ROLE(kInnerNorm, "norms", Class::kNorm, {kIntermediate})                                         \
  ROLE(kGateUp, "MLP", Class::kMatrix, {kGateUpWidth, kHidden}, {}, {Role::kGate, Role::kUp})      \
  /* Numbers of xIELU, one each; see ActivationFunction. The alphas are stored before a softplus.  \
   */                                                                                              \
  ROLE(kActivationAlphaP, "MLP", Class::kCorrection, {kOne})                                       \
  ROLE(kActivationAlphaN, "MLP", Class::kCorrection, {kOne})                                       \
  ROLE(kActivationBeta, "MLP", Class::kActivationBeta, {})                                         \
  ROLE(kActivationEps, "MLP", Class::kActivationEps, {})                                           \
  /* factor of its output */                                                                       \
  ROLE(kMlpScale, "MLP", Class::kMixerNorm, {kOne})                                                \
  /* Mixture of experts. */                                                                        \
  ROLE(kRouter, "routers", Class::kMatrix, {kExperts, kHidden})                                    \
  ROLE(kRouterBias, "routers", Class::kBias, {kExperts})                                           \
  /* added to the scores that choose experts, not to their weights */                              \
  ROLE(kRouterCorrection, "routers", Class::kCorrection, {kExperts})                               \
  /* factor of all weights */                                                                      \
  ROLE(kRouterScale, "routers", Class::kMixerNorm, {kOne})                                         \
  /* weight of the norm of the router's input */                                                   \
  ROLE(kRouterNorm, "norms", Class::kNorm, {kHidden})                                              \
  /* factor of each expert's weight */                                                             \
  ROLE(kExpertScale, "routers", Class::kMixerNorm, {kExperts})                                     \
  /* before experts beside an MLP */                                                               \
  ROLE(kExpertNorm, "norms", Class::kNorm, {kHidden})                                              \
  ROLE(kExpertOutputNorm, "norms", Class::kNorm, {kHidden})                                        \
  /* behind the MLP beside them */                                                                 \
  ROLE(kMlpBesideNorm, "norms", Class::kNorm, {kHidden})                                           \
  ROLE(kExpertGate, "experts", Class::kMatrix, {kExpertIntermediate, kExpertWidth},                \
       Role::kExpertUp)                                                                            \
  ROLE(kExpertUp, "experts", Class::kMatrix, {kExpertIntermediate, kExpertWidth})                  \
  ROLE(kExpertDown, "experts", Class::kOutputMatrix, {kExpertWidth, kExpertIntermediate})          \
  /* to the latent that experts read, and from the sum of what they give */                        \
  ROLE(kExpertsIn, "experts", Class::kMatrix, {kExpertWidth, kHidden})                             \
  ROLE(kExpertsOut, "experts", Class::kOutputMatrix, {kHidden, kExpertWidth})                      \
  /* of that sum */                                                                                \
  ROLE(kExpertsSumNorm, "norms", Class::kNorm, {kExpertWidth})                                     \
  ROLE(kExpertsInBias, "experts", Class::kBias, {kExpertWidth})                                    \
  ROLE(kExpertsOutBias, "experts", Class::kOutputBias, {kHidden})                                  \
  ROLE(kExpertGateUp, "experts", Class::kMatrix, {kExpertGateUpWidth, kHidden}, {},                \
       {Role::kExpertGate, Role::kExpertUp})                                                       \
  ROLE(kExpertGateBias, "experts", Class::kBias, {kExpertIntermediate})                            \
  ROLE(kExpertUpBias, "experts", Class::kBias, {kExpertIntermediate})                              \
  ROLE(kExpertGateUpBias, "experts", Class::kBias, {kExpertGateUpWidth}, {},                       \
       {Role::kExpertGateBias, Role::kExpertUpBias})                                               \
  ROLE(kExpertDownBias, "experts", Class::kOutputBias, {kHidden})                                  \
  ROLE(kSharedGate, "shared experts", Class::kMatrix, {kSharedIntermediate, kHidden},              \
       Role::kSharedUp)                                                                            \
  ROLE(kSharedUp, "shared experts", Class::kMatrix, {kSharedIntermediate, kHidden})                \
  ROLE(kSharedGateBias, "shared experts", Class::kBias, {kSharedIntermediate})                     \
  ROLE(kSharedUpBias, "shared experts", Class::kBias, {kSharedIntermediate})                       \
  ROLE(kSharedDownBias, "shared experts", Class::kOutputBias, {kHidden})                           \
  ROLE(kSharedGateUp, "shared experts", Class::kMatrix, {kSharedGateUpWidth, kHidden}, {},         \
       {Role::kSharedGate, Role::kSharedUp})                                                       \
  ROLE(kSharedDown, "shared experts", Class::kOutputMatrix, {kHidden, kSharedIntermediate})        \
  /* one logit a token; its sigmoid multiplies the shared expert's output */                       \
  ROLE(kSharedExpertGate, "shared experts", Class::kMatrix, {kOne, kHidden}, Role::kRouter)        \
  /* Input of a draft layer: kDraftProjection of the norms of the next token's embedding and of */ \
  /* the hidden state. */                                                                          \
  ROLE(kDraftEmbeddingNorm, "drafts", Class::kNorm, {kHidden})                                     \
  ROLE(kDraftHiddenNorm, "drafts", Class::kNorm, {kHidden})                                        \
  ROLE(kDraftProjection, "drafts", Class::kMatrix, {kHidden, kTwiceHidden})                        \
  /* A layer's own embedding, gated by the residual stream at the layer's end. */                  \
  ROLE(kLayerInputGate, "layer inputs", Class::kMatrix, {kLayerInput, kHidden})                    \
  ROLE(kLayerInputOutput, "layer inputs", Class::kOutputMatrix, {kHidden, kLayerInput})            \
  ROLE(kLayerInputOutputNorm, "norms", Class::kOutputNorm, {kHidden})                              \
  /* Parallel residual streams (AltUp): a router's tanh makes the coefficients that mix them */    \
  /* before the layer, and those by which they follow its change of the active one. */             \
  ROLE(kStreamRouter, "residual streams", Class::kMatrix, {kStreams, kHidden})                     \
  ROLE(kStreamRouterNorm, "norms", Class::kNorm, {kHidden})                                        \
  ROLE(kStreamPrediction, "residual streams", Class::kOutputMatrix, {kStreamPairs, kStreams})      \
  ROLE(kStreamCorrection, "residual streams", Class::kOutputMatrix, {kStreams, kStreams})          \
  /* of the active stream, where the layer's own input is gated by it */                           \
  ROLE(kStreamScale, "norms", Class::kMixerNorm, {kHidden})                                        \
  /* Hyper-connections of the streams with attention, or a recurrent mixer, and with the MLP */    \
  ROLE(kAttentionConnection, "residual streams", Class::kMatrix, {kConnections, kStreamsWidth})    \
  ROLE(kAttentionConnectionScale, "residual streams", Class::kMixerNorm, {kConnectionParts})       \
  ROLE(kAttentionConnectionBase, "residual streams", Class::kCorrection, {kConnections})           \
  ROLE(kMlpConnection, "residual streams", Class::kMatrix, {kConnections, kStreamsWidth})          \
  ROLE(kMlpConnectionScale, "residual streams", Class::kMixerNorm, {kConnectionParts})             \
  ROLE(kMlpConnectionBase, "residual streams", Class::kCorrection, {kConnections})                 \
  /* Residual streams that gates of a low rank mix into a layer's input: their norms, one a */     \
  /* stream, the gates, and the share of the layer's output that each stream gets. */              \
  ROLE(kAttentionMixNorm, "norms", Class::kNorm, {kStreamsWidth})                                  \
  ROLE(kAttentionMixDown, "residual streams", Class::kMatrix, {kStreamMixRank, kStreamsWidth})     \
  ROLE(kAttentionMixUp, "residual streams", Class::kMatrix, {kStreamsWidth, kStreamMixRank})       \
  ROLE(kAttentionShares, "residual streams", Class::kMatrix, {kStreams, kStreamsWidth},            \
       Role::kAttentionMixDown)                                                                    \
  ROLE(kMlpMixNorm, "norms", Class::kNorm, {kStreamsWidth})                                        \
  ROLE(kMlpMixDown, "residual streams", Class::kMatrix, {kStreamMixRank, kStreamsWidth})           \
  ROLE(kMlpMixUp, "residual streams", Class::kMatrix, {kStreamsWidth, kStreamMixRank})             \
  ROLE(kMlpShares, "residual streams", Class::kMatrix, {kStreams, kStreamsWidth},                  \
       Role::kMlpMixDown)                                                                          \
  /* Residual sums that a layer's input attends over: before attention or a mixer, and the MLP. */ \
  ROLE(kAttentionSumNorm, "norms", Class::kNorm, {kHidden})                                        \
  ROLE(kAttentionSumScore, "residual streams", Class::kMatrix, {kOne, kHidden})                    \
  ROLE(kMlpSumNorm, "norms", Class::kNorm, {kHidden})                                              \
  ROLE(kMlpSumScore, "residual streams", Class::kMatrix, {kOne, kHidden})                          \
  /* N-grams: rows of a table by hash, from which a value and a key of each stream are made; */    \
  /* the norms of keys, of the streams and of what the convolution reads. */                       \
  ROLE(kNgramEmbedding, "embeddings", Class::kEmbedding, {kNgramPartRows, kNgramHashWidth})        \
  /* each token's factor; of each hash the number of rows, and the first */                        \
  ROLE(kNgramFactors, "n-grams", Class::kHashNumber, {kNgramLongest})                              \
  ROLE(kNgramSizes, "n-grams", Class::kHashNumber, {kNgramHashes})                                 \
  ROLE(kNgramOffsets, "n-grams", Class::kHashNumber, {kNgramHashes})                               \
  ROLE(kNgramKey, "n-grams", Class::kMatrix, {kStreamsWidth, kNgramWidth})                         \
  ROLE(kNgramValue, "n-grams", Class::kMatrix, {kHidden, kNgramWidth}, Role::kNgramKey)            \
  ROLE(kNgramKeyNorm, "norms", Class::kNorm, {kStreamsWidth})                                      \
  ROLE(kNgramStreamNorm, "norms", Class::kNorm, {kStreamsWidth})                                   \
  ROLE(kNgramConvNorm, "norms", Class::kNorm, {kStreamsWidth})                                     \
  ROLE(kNgramConv, "n-grams", Class::kMatrix, {kStreamsWidth, kOne, kNgramKernel})                 \
  /* A residual of low rank beside attention (Laurel). */                                          \
  ROLE(kLaurelDown, "attention", Class::kMatrix, {kLaurelRank, kHidden}, Role::kQuery)             \
  ROLE(kLaurelUp, "attention", Class::kMatrix, {kHidden, kLaurelRank})                             \
  ROLE(kLaurelNorm, "norms", Class::kOutputNorm, {kHidden})                                        \
  /* factor of the residual stream at the layer's end */                                           \
  ROLE(kLayerScalar, "norms", Class::kMixerNorm, {kOne})

#define KVCAL_NAME(name, ...) name,
enum class Role : uint8_t { KVCAL_ROLES(KVCAL_NAME) };
#undef KVCAL_NAME

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
  kHashNumber,  ///< I64: constants of the hashes of n-grams
};

/// Properties of one role.
struct RoleRow {
  Role role{};
  std::string name;        ///< as `inspect --tensors` prints it
  std::string_view group;  ///< name under which sizes are summed: "attention", "norms"
  TensorClass tensor_class = TensorClass::kMatrix;
  std::vector<Dim> shape = {};  ///< of tensors whose row of a table names none
  /// Role that stands for the input of a Linear: Linears with the same input name the same one.
  /// nullopt: the row's own role, or that of the first it holds.
  std::optional<Role> input = {};
  /// Roles whose rows a fused tensor holds: one after the other, except kQueryKeyValue (see
  /// Architecture::fused_qkv) and kQueryAndGate (head by head).
  std::vector<Role> holds = {};
};

/// All roles, in the order of Role.
const std::vector<RoleRow>& role_rows();
const RoleRow& row_of(Role role);

/// Whether the forward pass looks up single rows of a layer's tensors of the role, which may be
/// larger than memory.
constexpr bool is_looked_up(Role role) {
  return role == Role::kNgramEmbedding;
}

/// Whether the tensor is a vector that scores residual sums: a module of class Linear that nothing
/// runs as one, so its input is never seen, and no program quantizes it.
constexpr bool is_score(Role role) {
  return role == Role::kAttentionSumScore || role == Role::kMlpSumScore ||
         role == Role::kFinalSumScore;
}

/// Role under which observations report the input of a Linear with this role.
Role input_of(Role role);

/// The fused tensors that may hold a role.
std::vector<Role> fused_roles_of(Role role);

/// One condition of a row: a switch of the model or of a layer.
struct Condition {
  bool ModelConfig::*model = nullptr;
  bool LayerConfig::*layer = nullptr;
  bool wanted = true;
};
constexpr Condition when(bool ModelConfig::*flag) {
  return {.model = flag};
}
constexpr Condition unless(bool ModelConfig::*flag) {
  return {.model = flag, .wanted = false};
}
constexpr Condition when(bool LayerConfig::*flag) {
  return {.layer = flag};
}
constexpr Condition unless(bool LayerConfig::*flag) {
  return {.layer = flag, .wanted = false};
}

/// Layout of a matrix in the file.
KVCAL_WORDED_ENUM(Layout, "layout",  //
                  kOutIn,
                  kInOut,             ///< transposed, as in GPT-2's Conv1D
                  kInOutInterleaved,  ///< transposed; gate and up alternate along out
                  kOutInterleaved)    ///< bias whose gate and up values alternate

/// The name with number in place of "{}", where it has that.
inline std::string numbered(std::string_view name, int64_t number) {
  std::string text(name);
  if (const size_t place = text.find("{}"); place != std::string::npos)
    text.replace(place, 2, std::to_string(number));
  return text;
}

/// Tensor [out, in] or [out] of one expert, where each expert has its own; part of a stacked row.
/// "{}" in name stands for the expert's number.
struct SplitRow {
  Role role;
  std::string_view name;
};

/// One tensor of a family's checkpoints. Names of layer tensors are relative to "<layer prefix>N.".
/// A row that repeats is one tensor for each number in place of "{}"; without "{}", one tensor
/// whose first dimension counts them, which shape leaves out.
struct TensorRow {
  Role role;
  std::string_view name;
  std::vector<Dim> shape = {};             ///< none: the role's usual one
  std::vector<Condition> conditions = {};  ///< all must hold
  Layout layout = Layout::kOutIn;
  Dim repeat = Dim::kOne;
  /// Tensors that an expert's slice of a stacked row splits into: equal parts of its outputs, in
  /// the order of layout.
  std::vector<SplitRow> split = {};
  std::string_view module = {};  ///< where it is not name without ".weight"
  /// One tensor holds all of repeat below each other, without a dimension that counts them.
  bool is_flat = false;
  /// A Linear of the model that every layer runs a part of; layer 0 observes its input.
  bool is_run_by_layers = false;
  /// A Linear of the model that the last layer runs at its end, which observes its input.
  bool is_run_by_last_layer = false;

  /// Tensors of the logits have the head's prefix, not the backbone's.
  bool is_of_head() const { return role == Role::kLmHead || role == Role::kLmHeadBias; }
  bool is_numbered() const { return name.find("{}") != std::string_view::npos; }
  /// One tensor holds all of repeat.
  bool is_stacked() const { return repeat != Dim::kOne && !is_numbered(); }
  std::string name_of(int64_t number) const { return numbered(name, number); }
};

/// Tensors of a model, or of each layer.
using TensorRows = std::vector<TensorRow>;

}  // namespace kvcal
