#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "family/model_config.h"
#include "family/roles.h"

namespace kvcal {

/// Symbolic dimension, resolved with ModelConfig.
enum class Dim : uint8_t {
  kOne,
  kHidden,
  kTwiceHidden,
  kVocab,
  kPositions,
  kHeads,
  kKvHeads,
  kEmbeddingRows,
  kHeadDim,
  kQueryWidth,
  kKvWidth,     ///< of K, and of V where both are alike
  kValueWidth,  ///< of V
  kQkvWidth,
  kAttendedWidth,
  kQueryAndGateWidth,
  kQueryGateWidth,
  kMixerHeads,
  kMixerHeadDim,
  kMixerInner,
  kMixerChannels,
  kMixerKernel,
  kMixerKeyWidth,        ///< delta net: of all keys
  kMixerConvKeyWidth,    ///< of the convolution's part for keys, and for queries
  kMixerConvValueWidth,  ///< for values
  kMixerStateDim,
  kMixerStepRank,
  kMixerStatesWidth,
  kMixerInWidth,     ///< gate and channels; Mamba 2 also step sizes
  kMixerGatesWidth,  ///< delta net: update strengths and decays
  kQueryRank,
  kLatentRank,
  kLatentWidth,    ///< the latent and the rotated key
  kLatentUpWidth,  ///< unrotated K and V of all heads
  kIndexerHeads,
  kIndexerHeadDim,
  kIndexerQueryWidth,
  kIntermediate,
  kGateUpWidth,
  kExperts,
  kExpertIntermediate,
  kExpertGateUpWidth,
  kSharedIntermediate,
  kSharedGateUpWidth,
  kLayerInput,  ///< of one layer's own embedding
  kLayerInputVocab,
  kAllLayerInputs,  ///< of all layers' embeddings of one token
  kStreams,         ///< parallel residual streams
  kStreamPairs,     ///< pairs of them
  kFurtherStreams,  ///< all but one
  kLaurelRank,
};

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
enum class Layout : uint8_t {
  kOutIn,
  kInOut,             ///< transposed, as in GPT-2's Conv1D
  kInOutInterleaved,  ///< transposed; gate and up alternate along out
  kOutInterleaved,    ///< bias whose gate and up values alternate
};

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
  std::vector<Dim> shape;
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

}  // namespace kvcal
