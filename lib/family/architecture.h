#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "family/model_config.h"
#include "family/tensor_rows.h"

namespace kvcal {

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

/// Which layers have experts; the others have an MLP.
enum class ExpertLayers : uint8_t {
  kNone,
  kAll,
  kAfterFirst,  ///< from first_k_dense_replace on
  kEveryStep,   ///< every decoder_sparse_step-th that mlp_only_layers does not name
  kPeriod       ///< one of every expert_layer_period, at expert_layer_offset
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
  bool has_prediction_layers =
      false;  ///< checkpoints carry layers behind the last that predict further
  int64_t intermediate_multiple =
      0;  ///< of hidden_size, where intermediate_size is absent; 0: required
  Mixer recurrence = Mixer::kNone;  ///< of the layers that are not attention
  bool has_single_blocks = false;   ///< a layer is a mixer or an MLP, not both
  ExpertLayers expert_layers = ExpertLayers::kNone;
  Positions positions = Positions::kRope;
  LocalRope local_rope = LocalRope::kSame;
  SlidingWindow sliding_window = SlidingWindow::kNone;
  QkNorm qk_norm = QkNorm::kPerHead;
  FusedQkv fused_qkv = FusedQkv::kConcatenated;
  RouterScore router_score = RouterScore::kSoftmax;
  GroupScore group_score = GroupScore::kNone;

  bool has_experts() const { return expert_layers != ExpertLayers::kNone; }

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
