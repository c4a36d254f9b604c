#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "family/model_config.h"
#include "family/number_range.h"
#include "family/tensor_rows.h"

namespace kvcal {

/// The layers with a sliding window. "layer_types" in config.json takes precedence, except over
/// kNone, kAllLayers and kAllWhereUsed.
enum class SlidingWindow : uint8_t {
  kNone,
  kAllLayers,
  kAllOrTyped,                ///< layer_types, or all
  kPattern,                   ///< all but every sliding_window_pattern-th layer
  kPatternFromFirst,          ///< all but layers 0, n, 2n, .. for n = sliding_window_pattern
  kFromMaxWindowLayers,       ///< from max_window_layers on
  kAttentionTypes,            ///< GPT-Neo's attention_types: the "local" ones
  kAfterMaxWindowLayers,      ///< from max_window_layers on, where use_sliding_window
  kEvenBelowMaxWindowLayers,  ///< layers 0, 2, .. below max_window_layers, where use_sliding_window
  kAllWhereUsed,              ///< all, where use_sliding_window
  kTyped,                     ///< layer_types, or none
  kPatternAfterDense,  ///< as kPattern, counted from the first layer with experts; before it by
                       ///< prefix_dense_sliding_window_pattern
  kHybridPattern       ///< hybrid_layer_pattern, or all but the first and every sixth
};

/// The layers with experts; the others have an MLP.
enum class ExpertLayers : uint8_t {
  kNone,
  kAll,
  kAfterFirst,   ///< from first_k_dense_replace on
  kTyped,        ///< mlp_layer_types, or a list moe_layer_freq, or as kAfterFirst
  kEveryStep,    ///< every decoder_sparse_step-th that mlp_only_layers does not name
  kPeriod,       ///< one of every expert_layer_period, at expert_layer_offset
  kWhereEnabled  ///< all, where enable_moe_block
};

/// Indexer of sparse attention, by the RoPE of its queries and keys.
enum class Indexer : uint8_t {
  kNone,
  kHalves,      ///< rotates halves
  kInterleaved  ///< rotates pairs (2i, 2i + 1)
};

/// Encoding of positions.
enum class Positions : uint8_t {
  kRope,
  kNone,
  kLearned,                     ///< a table added to the embedding
  kSinusoidal,                  ///< the same with computed waves
  kRopeInSlidingLayers,         ///< full-attention layers have no RoPE
  kRopeInSlidingOrDenseLayers,  ///< nor have they, except layers without experts where
                                ///< prefix_dense_sliding_window_pattern is 1
  kRopeByLayerType,             ///< no RoPE where rope_parameters has null for the layer's type
  kRopeByLayer,                 ///< layer_rope_theta: the theta of each layer; 0: no RoPE
  kRopeWhereListed  ///< no RoPE where no_rope_layers holds 0, or in every no_rope_layer_interval-th
                    ///< layer
};

/// RoPE of sliding-window layers, where it differs from that of the others.
enum class LocalRope : uint8_t {
  kSame,
  kOwnTheta,  ///< rope_local_base_freq
  kUnscaled   ///< rope_theta without rope_scaling
};

enum class QkNorm : uint8_t { kPerHead, kPerHeadOwnWeight, kWhole };

/// Row order of a fused Q, K, V: all of Q, then K, then V; or group by group: query heads, K head,
/// V head.
enum class FusedQkv : uint8_t {
  kConcatenated,
  kByGroup,
  kFourBlocks  ///< CodeGen: four blocks, in each a quarter of Q, of V, of K
};

/// Multi-token prediction layer that engines run as a draft, by the names of its tensors.
enum class DraftLayer : uint8_t {
  kNone,
  kBehindLast,  ///< as a layer behind the last, with enorm, hnorm and eh_proj in it
  kMtp          ///< mtp.layers.0, with mtp.pre_fc_norm_embedding, mtp.pre_fc_norm_hidden and mtp.fc
};

/// Another name of a key in a family's config.json; "outer.key" is a key of an object.
struct KeyAlias {
  std::string_view key, alias;
};
/// A key that turns a variation on or off.
struct SwitchKey {
  std::string_view key;
  bool ModelConfig::*field;
};
/// A key that holds a number; null or absent leaves the field unchanged.
struct NumberKey {
  enum class Reading : uint8_t { kAsIs, kInverse, kInverseSquareRoot };
  std::string_view key;
  float ModelConfig::*field;
  Reading reading = Reading::kAsIs;
  NumberRange range = kFactorRange;
};
/// A key with only one supported value, as JSON. It may be absent.
struct FixedKey {
  std::string_view key, value;
};
/// Prefixes of the text model's tensor names: of the backbone, and of lm_head.
struct NamePrefix {
  std::string backbone, head = {};
};

/// A model family as a set of variations; fields that are not named are as in Llama.
struct Architecture {
  std::string_view name;
  std::vector<std::string_view> model_types;  ///< config.json "model_type"
  std::string_view attention_class;           ///< class of its attention modules, for recipes
  std::string_view description = "";          ///< well-known models of the family
  std::string_view defaults = "{}";  ///< defaults of keys that config.json may leave out, as JSON
  /// Further defaults of a text_config: there transformers writes only what differs from its class.
  std::string_view text_defaults = "{}";
  std::vector<KeyAlias> aliases = {};
  std::vector<SwitchKey> switches = {};
  std::vector<NumberKey> numbers = {};
  std::vector<FixedKey> fixed = {};
  /// Further keys that may stand in config.json: those that resolve reads, and those that change
  /// nothing in this family. Other keys that nothing reads are refused where FamilyChoice chose it.
  std::vector<std::string_view> known_keys = {};
  /// Handles keys that the tables cannot express; runs after all keys are read.
  void (*resolve)(const Json& config, ModelConfig& resolved) = nullptr;

  bool centers_norm = false;      ///< LayerNorm: subtracts the mean
  bool norm_adds_one = false;     ///< stored as w, applied as 1 + w
  bool scales_embedding = false;  ///< times sqrt(hidden_size)
  bool norms_embedding = false;   ///< RMS norm without weight
  /// Norms that have no weights.
  std::vector<Role> plain_norms = {};
  int64_t extra_embeddings = 0;  ///< rows of the embedding behind those of the vocabulary
  /// Rows of the table of positions before that of position 0.
  int64_t position_offset = 0;
  bool rope_is_interleaved = false;
  bool rope_turns_back = false;       ///< by the negative angle
  bool weighs_expert_inputs = false;  ///< a router's weights multiply inputs, not outputs
  bool counts_rotary_dim = false;     ///< rotary_dim is a number of dimensions, not a share
  bool has_latent_attention = false;  ///< MLA: the cache holds the latent and one rotated key
  bool norms_after_rope = false;      ///< Q and K are normed after they turn
  bool has_rope_alpha = false;        ///< rope_scaling's alpha raises theta
  Indexer indexer = Indexer::kNone;   ///< of latent attention
  bool has_query_gate = false;        ///< a sigmoid of the input multiplies the output of attention
  bool has_softplus_gate = false;     ///< a softplus, instead of the sigmoid
  bool has_heads_by_layer = false;    ///< num_attention_heads_per_layer: heads of Q
  bool has_value_dim = false;         ///< v_head_dim is the width of V's heads
  bool has_window_heads = false;      ///< twice the KV heads in layers with a window
  bool has_global_heads = false;      ///< layers without a window have heads of their own sizes
  bool shares_caches = false;         ///< the last num_kv_shared_layers layers read earlier caches
  bool has_mlp_by_layer = false;      ///< widths and sparsity of MLPs may be lists, one a layer
  bool replaces_layer_inputs = false;  ///< tokens behind the table of layers' inputs read its row 0
  bool norms_values = false;           ///< V of each head, without a weight
  bool ends_with_full_attention = false;  ///< also where layer_types says otherwise
  bool has_mlp_beside_experts = false;    ///< both run in layers with experts, each between norms
  bool has_prediction_layers = false;     ///< multi-token prediction layers follow the last
  DraftLayer draft = DraftLayer::kNone;   ///< the first of them
  bool masks_first_draft = false;         ///< row 0 of its input has no embedding
  /// Module in the draft's attention, {} for k or v, whose scales engines read; empty: the former.
  std::string_view draft_scales = "";
  int64_t intermediate_multiple =
      0;  ///< of hidden_size, where intermediate_size is absent; 0: required
  Mixer recurrence = Mixer::kNone;      ///< mixer of layers without attention, or beside it
  bool has_single_blocks = false;       ///< a layer is a mixer or an MLP, not both
  bool mixes_beside_attention = false;  ///< every layer has attention and a recurrent mixer
  ExpertLayers expert_layers = ExpertLayers::kNone;
  Positions positions = Positions::kRope;
  LocalRope local_rope = LocalRope::kSame;
  SlidingWindow sliding_window = SlidingWindow::kNone;
  QkNorm qk_norm = QkNorm::kPerHead;
  FusedQkv fused_qkv = FusedQkv::kConcatenated;
  RouterScore router_score = RouterScore::kSoftmax;
  GroupScore group_score = GroupScore::kNone;

  bool has_experts() const { return expert_layers != ExpertLayers::kNone; }

  std::vector<NamePrefix> prefixes = {{"model."}};  ///< without a wrapper; see wrapper.h
  std::string_view layers_name = "layers.";         ///< between prefix and layer number
  std::string_view attention_module = "self_attn";
  std::vector<TensorRow> model_tensors;  ///< below the prefix; lm_head's below head
  std::vector<TensorRow> layer_tensors;
  /// Tensors that checkpoints hold and the text model does not use, by suffix and prefix of their
  /// names.
  std::vector<std::string_view> ignored_suffixes = {};
  std::vector<std::string_view> ignored_prefixes = {};
  /// Tensors that checkpoints hold for layers without a cache of their own, where nothing reads
  /// them; relative to the layer.
  std::vector<std::string_view> ignored_without_cache = {};
};

/// All families, in the order in which users see them.
const std::vector<Architecture>& architectures();

}  // namespace kvcal
