#pragma once

#include <cstdint>

namespace kvcal {

/// Symbolic dimension, resolved with ModelConfig.
#define KVCAL_DIMS(DIM)                                                                         \
  DIM(kOne, 1)                                                                                  \
  DIM(kHidden, hidden_size)                                                                     \
  DIM(kEmbeddingWidth, embedding_size)                                                          \
  DIM(kVocab, vocab_size)                                                                       \
  DIM(kOutputVocab, output_vocab_size)                                                          \
  DIM(kEmbeddingRows, vocab_size + architecture->extra_embeddings)                              \
  DIM(kPositions, max_position_embeddings + architecture->position_offset)                      \
  DIM(kHeads, of_attention(&AttentionSizes::heads))                                             \
  DIM(kKvHeads, of_attention(&AttentionSizes::kv_heads))                                        \
  DIM(kHeadDim, of_attention(&AttentionSizes::head_dim))                                        \
  DIM(kQueryWidth, of_attention(&AttentionSizes::query_width))                                  \
  /* of K, and of V where both are alike */                                                     \
  DIM(kKvWidth, of_attention(&AttentionSizes::key_width))                                       \
  DIM(kValueWidth, of_attention(&AttentionSizes::value_width))                                  \
  DIM(kQkvWidth, of_attention(&AttentionSizes::qkv_width))                                      \
  DIM(kAttendedWidth, of_attention(&AttentionSizes::attended_width))                            \
  DIM(kQueryAndGateWidth, 2 * of_attention(&AttentionSizes::query_width))                       \
  DIM(kQueryGateWidth, gates_whole_heads ? of_attention(&AttentionSizes::heads)                 \
                                         : of_attention(&AttentionSizes::query_width))          \
  DIM(kMixerHeads, recurrent.heads)                                                             \
  DIM(kMixerHeadDim, recurrent.head_dim)                                                        \
  DIM(kMixerInner, recurrent.inner())                                                           \
  DIM(kMixerChannels, recurrent.channels)                                                       \
  DIM(kMixerKernel, recurrent.kernel)                                                           \
  /* delta net: of all keys; of the convolution's part for keys, and for queries; for values */ \
  DIM(kMixerKeyWidth, recurrent.keys())                                                         \
  DIM(kMixerConvKeyWidth, has_saved_names ? (recurrent.channels + 2) / 3 : recurrent.keys())    \
  DIM(kMixerConvValueWidth, recurrent.channels - 2 * size_of(Dim::kMixerConvKeyWidth))          \
  DIM(kMixerStateDim, recurrent.state_dim)                                                      \
  DIM(kMixerStepRank, recurrent.step_rank)                                                      \
  DIM(kMixerGateRank, recurrent.gate_rank)                                                      \
  DIM(kMixerDecayRank, recurrent.decay_rank)                                                    \
  DIM(kMixerStatesWidth, recurrent.step_rank + 2 * recurrent.state_dim)                         \
  /* gate and channels; Mamba 2 also step sizes */                                              \
  DIM(kMixerInWidth, recurrent.inner() + recurrent.channels +                                   \
                         (architecture->recurrence == Mixer::kMamba2 ||                         \
                                  architecture->recurrence == Mixer::kShortConvolution          \
                              ? recurrent.heads                                                 \
                              : 0))                                                             \
  /* delta net: update strengths and decays */                                                  \
  DIM(kMixerGatesWidth, 2 * recurrent.heads)                                                    \
  /* delta net: keys, queries, values, gates of the output, update strengths and decays */      \
  DIM(kMixerAllWidth, 2 * (recurrent.keys() + recurrent.inner() + recurrent.heads))             \
  DIM(kQueryRank, of_latent(&LatentConfig::query_rank))                                         \
  DIM(kLatentRank, of_latent(&LatentConfig::latent_rank))                                       \
  DIM(kLatentKeyDim, of_latent(&LatentConfig::rope_dim))                                        \
  /* the latent and the rotated key; unrotated K and V of all heads */                          \
  DIM(kLatentWidth, of_latent(&LatentConfig::width))                                            \
  DIM(kLatentUpWidth, layer->latent.up_width(of_attention(&AttentionSizes::heads)))             \
  DIM(kRelativeRank, relative_rank)                                                             \
  DIM(kRelativeExtent, layer ? layer->relative_extent : 0)                                      \
  DIM(kRelativeWidth, relative_rank* of_attention(&AttentionSizes::heads))                      \
  DIM(kShortKernel, short_kernel)                                                               \
  DIM(kIndexerHeads, indexer.heads)                                                             \
  DIM(kIndexerHeadDim, indexer.head_dim)                                                        \
  DIM(kIndexerQueryWidth, indexer.query_width())                                                \
  /* queries and the key */                                                                     \
  DIM(kIndexerQueryKeyWidth, indexer.query_width() + indexer.head_dim)                          \
  DIM(kIntermediate, layer ? layer->intermediate_size : intermediate_size)                      \
  DIM(kGateUpWidth, 2 * size_of(Dim::kIntermediate, layer))                                     \
  DIM(kExperts, moe.num_experts)                                                                \
  /* of the router's logits */                                                                  \
  DIM(kScoredExperts, moe.num_experts + moe.scored_shared)                                      \
  DIM(kScoredShared, moe.scored_shared)                                                         \
  DIM(kExpertIntermediate, moe.intermediate_size)                                               \
  /* of the experts' inputs and outputs */                                                      \
  DIM(kExpertWidth, moe.latent_size > 0 ? moe.latent_size : hidden_size)                        \
  DIM(kExpertGateUpWidth, 2 * moe.intermediate_size)                                            \
  DIM(kSharedIntermediate, moe.shared_intermediate_size)                                        \
  DIM(kSharedGateUpWidth, 2 * moe.shared_intermediate_size)                                     \
  /* of one layer's own embedding; of all layers' embeddings of one token */                    \
  DIM(kLayerInput, layer_input_size)                                                            \
  DIM(kLayerInputVocab, layer_input_vocab)                                                      \
  DIM(kAllLayerInputs, num_hidden_layers* layer_input_size)                                     \
  /* parallel residual streams; pairs of them; all but one */                                   \
  DIM(kStreams, streams)                                                                        \
  DIM(kStreamPairs, streams* streams)                                                           \
  DIM(kFurtherStreams, streams - 1)                                                             \
  /* hyper-connections: all streams of a token; its weights; factors of their parts */          \
  DIM(kStreamsWidth, streams* hidden_size)                                                      \
  DIM(kConnections, (2 + streams) * streams)                                                    \
  DIM(kConnectionParts, 3)                                                                      \
  /* rank of the gates that mix them */                                                         \
  DIM(kStreamMixRank, stream_mix_rank)                                                          \
  /* n-grams: tensors of a table, and rows of each but the last; tokens of the longest; */      \
  /* hashes of a token; width of one's embedding, and of all; taps of the convolution */        \
  DIM(kNgramParts, layer ? layer->ngram_parts() : 1)                                            \
  DIM(kNgramPartRows, layer ? layer->ngram_part_rows : 0)                                       \
  DIM(kNgramLongest, ngrams.longest)                                                            \
  DIM(kNgramHashes, ngrams.all_hashes())                                                        \
  DIM(kNgramHashWidth, ngrams.hash_width())                                                     \
  DIM(kNgramWidth, ngrams.width)                                                                \
  DIM(kNgramKernel, ngrams.kernel)                                                              \
  DIM(kLaurelRank, laurel_rank)                                                                 \
  /* of drafts alone, which no file of a family describes */                                    \
  DIM(kTwiceHidden, 2 * hidden_size)

#define KVCAL_NAME(name, ...) name,
enum class Dim : uint8_t { KVCAL_DIMS(KVCAL_NAME) };
#undef KVCAL_NAME

}  // namespace kvcal
