#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace kvcal {

/// What a tensor is to the forward pass. A fused tensor stands for the roles it holds.
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
  kQueryAndGate,   ///< holds kQuery and kQueryGate, head by head
  kQueryKeyValue,  ///< holds kQuery, kKey, kValue as Architecture::fused_qkv says
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
  kGateUp,  ///< holds kGate, then kUp
  // Mixture of experts.
  kRouter,
  kRouterBias,
  kRouterCorrection,  ///< added to the scores that choose, not to those that weigh
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertGateUp,  ///< holds kExpertGate, then kExpertUp
  kExpertGateBias,
  kExpertUpBias,
  kExpertGateUpBias,
  kExpertDownBias,
  kSharedGate,
  kSharedUp,
  kSharedGateUp,  ///< holds kSharedGate, then kSharedUp
  kSharedDown,
  kSharedExpertGate,  ///< one logit a token; its sigmoid weighs the shared expert
};

/// A dimension by meaning, resolved against ModelConfig.
enum class Dim : uint8_t {
  kOne,
  kHidden,
  kVocab,
  kPositions,
  kHeads,
  kKvHeads,
  kHeadDim,
  kQueryWidth,
  kKvWidth,
  kQkvWidth,
  kAttendedWidth,
  kQueryAndGateWidth,
  kMixerHeads,
  kMixerHeadDim,
  kMixerInner,
  kMixerChannels,
  kMixerKernel,
  kMixerStateDim,
  kMixerStepRank,
  kMixerStatesWidth,
  kMixerInWidth,     ///< gate and channels, and Mamba 2's step sizes
  kMixerGatesWidth,  ///< delta net: strengths and decays
  kQueryRank,
  kLatentRank,
  kLatentWidth,    ///< latent and the rotated key beside it
  kLatentUpWidth,  ///< K without rotation and V of all heads
  kIntermediate,
  kGateUpWidth,
  kExperts,
  kExpertIntermediate,
  kExpertGateUpWidth,
  kSharedIntermediate,
  kSharedGateUpWidth,
};

/// One condition of a row, on a switch of the model or of a layer.
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

/// How a matrix lies in the file.
enum class Layout : uint8_t {
  kOutIn,
  kInOut,             ///< transposed, as GPT-2's Conv1D
  kInOutInterleaved,  ///< transposed; gate and up alternate along out
  kOutInterleaved,    ///< a bias whose gate and up alternate
};

/// One tensor of a family's checkpoints. Layer tensors stand below "<layer prefix>N.". A row that
/// repeats is one tensor for each number in place of "{}", or without "{}" one tensor that holds
/// them all along a first dimension, which shape leaves out.
struct TensorRow {
  Role role;
  std::string_view name;
  std::vector<Dim> shape;
  std::vector<Condition> conditions = {};  ///< all must hold
  Layout layout = Layout::kOutIn;
  Dim repeat = Dim::kOne;
};

/// Which layers see only the last tokens. "layer_types" in config.json wins in all but kNone,
/// kAllLayers and kAllWhereUsed.
enum class SlidingWindow : uint8_t {
  kNone,
  kAllLayers,
  kAllOrTyped,                ///< layer_types, or all
  kPattern,                   ///< all but every sliding_window_pattern-th layer
  kAfterMaxWindowLayers,      ///< from max_window_layers on, where use_sliding_window
  kEvenBelowMaxWindowLayers,  ///< layers 0, 2, .. below max_window_layers, where use_sliding_window
  kAllWhereUsed               ///< all, where use_sliding_window
};

/// How tokens learn their place.
enum class Positions : uint8_t {
  kRope,
  kNone,
  kLearned,              ///< a table added to the embedding
  kRopeInSlidingLayers,  ///< layers that see everything have none
  kRopeWhereListed       ///< no_rope_layers (0: none) or every no_rope_layer_interval-th has none
};

/// RoPE of sliding-window layers where it differs.
enum class LocalRope : uint8_t {
  kSame,
  kOwnTheta,  ///< rope_local_base_freq
  kUnscaled   ///< rope_theta without rope_scaling
};

enum class QkNorm : uint8_t { kPerHead, kPerHeadOwnWeight, kWhole };

/// Rows of a fused Q, K, V: all of Q, then K, then V; or group by group, its query heads, its K
/// head, its V head.
enum class FusedQkv : uint8_t { kConcatenated, kByGroup };

/// Another name of a key in a family's config.json.
struct KeyAlias {
  std::string_view key, alias;
};
/// A key that turns a variation on or off.
struct SwitchKey {
  std::string_view key;
  bool ModelConfig::*field;
};
/// A key that holds a number; null and absent leave the field as it is.
struct NumberKey {
  enum class Reading : uint8_t { kAsIs, kInverse, kInverseSquareRoot };
  std::string_view key;
  float ModelConfig::*field;
  Reading reading = Reading::kAsIs;
};
/// A key of which one value is supported, as JSON. Absent is supported too.
struct FixedKey {
  std::string_view key, value;
};
/// Where the text model's tensors stand: before the backbone's names and before lm_head.
struct NamePrefix {
  std::string_view backbone, head = "";
};

/// A model family as the set of its variations; what is not named is as in Llama.
struct Architecture {
  std::string_view name;
  std::vector<std::string_view> model_types;  ///< config.json "model_type"
  std::vector<std::string_view> wrapper_types =
      {};                             ///< multimodal ones that hold it as text_config
  std::string_view attention_class;   ///< what recipes' targets call its attention modules
  std::string_view description = "";  ///< models people know it by
  std::string_view defaults = "{}";   ///< keys config.json may leave out, as JSON
  std::vector<KeyAlias> aliases = {};
  std::vector<SwitchKey> switches = {};
  std::vector<NumberKey> numbers = {};
  std::vector<FixedKey> fixed = {};
  /// What no table can say about this family's keys; runs after all keys are read.
  void (*resolve)(const Json& config, ModelConfig& resolved) = nullptr;

  bool centers_norm = false;      ///< LayerNorm: takes the mean off
  bool norm_adds_one = false;     ///< stored as w, applied as 1 + w
  bool scales_embedding = false;  ///< times sqrt(hidden_size)
  bool rope_is_interleaved = false;
  bool has_latent_attention = false;  ///< MLA: the cache holds the latent and one rotated key
  bool has_query_gate = false;        ///< a sigmoid of the input weighs what attention gives
  bool has_experts = false;
  bool has_prediction_layers =
      false;  ///< checkpoints carry layers behind the last that predict further
  int64_t intermediate_multiple =
      0;  ///< of hidden_size, where intermediate_size is absent; 0: required
  Mixer recurrence = Mixer::kNone;  ///< of the layers that are not attention
  bool has_single_blocks = false;   ///< a layer is a mixer or an MLP, not both
  Positions positions = Positions::kRope;
  LocalRope local_rope = LocalRope::kSame;
  SlidingWindow sliding_window = SlidingWindow::kNone;
  QkNorm qk_norm = QkNorm::kPerHead;
  FusedQkv fused_qkv = FusedQkv::kConcatenated;
  RouterScore router_score = RouterScore::kSoftmax;
  GroupScore group_score = GroupScore::kNone;

  std::vector<NamePrefix> prefixes = {{"model."}};
  std::string_view layers_name = "layers.";  ///< between prefix and layer number
  std::string_view attention_module = "self_attn";
  std::vector<TensorRow> model_tensors;  ///< names below the prefix; lm_head's below head
  std::vector<TensorRow> layer_tensors;
  /// Tensors that checkpoints carry and the text model does not read, by the ends and beginnings of
  /// their names.
  std::vector<std::string_view> ignored_suffixes = {};
  std::vector<std::string_view> ignored_prefixes = {};
};

/// The table of families, in the order they are listed to users.
const std::vector<Architecture>& architectures();

/// A model_type that is known and not supported, and why.
struct RefusedModelType {
  std::string_view model_type, reason;
};
const std::vector<RefusedModelType>& refused_model_types();

/// The family of a config.json, and the object in it that describes the text model. Throws Error
/// naming model_type and the known ones.
struct TextModel {
  const Architecture* architecture = nullptr;
  const Json* config = nullptr;
  std::string model_type;
};
TextModel text_model_of(const Json& config);

}  // namespace kvcal
