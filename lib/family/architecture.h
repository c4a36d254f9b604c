#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/value_range.h"
#include "family/model_config.h"
#include "family/roles.h"
#include "family/words.h"

namespace kvcal {

/// The layers with a sliding window. "layer_types" in config.json takes precedence, except over
/// kNone, kAllLayers and kAllWhereUsed.
KVCAL_WORDED_ENUM(SlidingWindow, "choice of sliding_window",  //
                  kNone, kAllLayers,
                  kAllOrTyped,            ///< layer_types, or all
                  kPattern,               ///< all but every sliding_window_pattern-th layer
                  kPatternFromFirst,      ///< all but 0, n, 2n, .. for n = sliding_window_pattern
                  kFromMaxWindowLayers,   ///< from max_window_layers on
                  kAttentionTypes,        ///< GPT-Neo's attention_types: the "local" ones
                  kAfterMaxWindowLayers,  ///< from max_window_layers on, where use_sliding_window
                  kEvenBelowMaxWindowLayers,  ///< 0, 2, .. below it, where use_sliding_window
                  kAllWhereUsed,              ///< all, where use_sliding_window
                  kTyped,                     ///< layer_types, or none
                  kTypedOrUnturned,    ///< layer_types, or where use_sliding_window those that
                                       ///< no_rope_layers leaves without RoPE
                  kPatternAfterDense,  ///< as kPattern, counted from the first layer with experts;
                                       ///< before it by prefix_dense_sliding_window_pattern
                  kHybridPattern)  ///< hybrid_layer_pattern, or all but the first and every sixth

/// The layers with experts; the others have an MLP.
KVCAL_WORDED_ENUM(ExpertLayers, "choice of expert_layers",  //
                  kNone, kAll,
                  kAfterFirst,  ///< from first_k_dense_replace on
                  kTyped,       ///< mlp_layer_types, or a list moe_layer_freq, or as kAfterFirst
                  kEveryStep,   ///< every decoder_sparse_step-th that mlp_only_layers does not name
                  kPeriod,      ///< one of every expert_layer_period, at expert_layer_offset
                  kWhereEnabled)  ///< all, where enable_moe_block

/// Indexer of sparse attention, by the RoPE of its queries and keys: it rotates halves, or pairs
/// (2i, 2i + 1). One of blocks selects blocks of keys by their means, which turn by halves.
KVCAL_WORDED_ENUM(Indexer, "choice of indexer", kNone, kHalves, kInterleaved, kBlocks)

/// Encoding of positions.
KVCAL_WORDED_ENUM(Positions, "choice of positions",  //
                  kRope, kNone,
                  kLearned,                     ///< a table added to the embedding
                  kSinusoidal,                  ///< the same with computed waves
                  kAlibi,                       ///< scores fall with the distance of the key
                  kRopeInSlidingLayers,         ///< full-attention layers have no RoPE
                  kRopeInSlidingOrDenseLayers,  ///< nor have they, except layers without experts
                                                ///< where prefix_dense_sliding_window_pattern is 1
                  kRopeByLayerType,  ///< none where rope_parameters has null for the layer's type
                  kRopeByLayer,      ///< layer_rope_theta: the theta of each layer; 0: no RoPE
                  kRopeWhereListed)  ///< none where no_rope_layers holds 0, or in every
                                     ///< no_rope_layer_interval-th layer

/// RoPE of sliding-window layers, where it differs from that of the others: rope_local_base_freq,
/// or rope_theta without rope_scaling.
KVCAL_WORDED_ENUM(LocalRope, "choice of local_rope", kSame, kOwnTheta, kUnscaled)

KVCAL_WORDED_ENUM(QkNorm, "choice of qk_norm", kPerHead, kPerHeadOwnWeight, kWhole)

/// Row order of a fused Q, K, V: all of Q, then K, then V; or group by group: query heads, K head,
/// V head; or CodeGen's four blocks, in each a quarter of Q, of V, of K.
KVCAL_WORDED_ENUM(FusedQkv, "choice of fused_qkv", kConcatenated, kByGroup, kFourBlocks)

/// Multi-token prediction layer that engines run as a draft, by the names of its tensors.
KVCAL_WORDED_ENUM(
    DraftLayer, "choice of draft",  //
    kNone,
    kBehindLast,  ///< as a layer behind the last, with enorm, hnorm and eh_proj in it
    kMtp)         ///< mtp.layers.0, mtp.pre_fc_norm_embedding, mtp.pre_fc_norm_hidden, mtp.fc

/// Another name of a key in a family's config.json; "outer.key" is a key of an object.
struct KeyAlias {
  std::string_view key, alias;
};
/// A key that turns a variation on or off.
struct SwitchKey {
  std::string_view key;
  bool ModelConfig::*field;
};
/// Factors, their inverses, and caps.
constexpr NumberRange kFactorRange{.least = 1e-6, .most = 1e6};

KVCAL_WORDED_ENUM(NumberReading, "reading", kAsIs, kInverse, kInverseSquareRoot)
/// A key that holds a number; null or absent leaves the field unchanged.
struct NumberKey {
  using Reading = NumberReading;
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

/// A JSON object as text, whose keys keep their order.
struct JsonObject {
  std::string text = "{}";

  JsonObject() = default;
  JsonObject(const char* json) : text(json) {}
  operator std::string_view() const { return text; }
  /// Takes over the changes, an object as text: a value of null takes the key away (RFC 7396).
  void merge(std::string_view changes);
};

/// Writes keys of published files as the tables read them, before any key is read.
using PrepareHook = void (*)(Json& config);

/// Handles keys of config.json that the tables cannot express.
using ResolveHook = void (*)(const Json& config, ModelConfig& resolved);

/// The fields of an Architecture, in the order of a family's file: FIELD(type, name, usual value,
/// comment of the file). C++, the reader of files, the template and the checks read this one list.
#define KVCAL_ARCHITECTURE_FIELDS(FIELD)                                                          \
  FIELD(std::string_view, name, "", "name of the family, in messages and manifests")              \
  FIELD(std::vector<std::string_view>, model_types, {},                                           \
        "the values of config.json's model_type that it is for; none: any that is not known")     \
  FIELD(std::string_view, attention_class, "",                                                    \
        "class of its attention modules, which targets of recipes name")                          \
  FIELD(std::string_view, description, "", "well-known models of the family")                     \
  FIELD(JsonObject, defaults, {}, "values of keys that config.json may leave out")                \
  /* there transformers writes only what differs from its class */                                \
  FIELD(JsonObject, text_defaults, {},                                                            \
        "more of them, for a text_config in a multimodal checkpoint")                             \
  FIELD(std::vector<KeyAlias>, aliases, {},                                                       \
        "other names of keys: the usual key, and that of this family")                            \
  FIELD(std::vector<SwitchKey>, switches, {},                                                     \
        "keys that are true or false, and the switch that each sets")                             \
  FIELD(std::vector<NumberKey>, numbers, {},                                                      \
        "keys that hold a number, and the number that each sets")                                 \
  FIELD(std::vector<FixedKey>, fixed, {}, "keys with one supported value, which may be absent")   \
  /* those that resolve reads, too; keys that nothing reads are refused where FamilyChoice chose  \
   * the family */                                                                                \
  FIELD(std::vector<std::string_view>, known_keys, {},                                            \
        "further keys that may stand in config.json, because they change nothing")                \
  /* runs after all keys are read */                                                              \
  FIELD(ResolveHook, resolve, nullptr,                                                            \
        "a hook in C++ for keys that the fields above cannot express: that of a built-in family") \
  FIELD(bool, centers_norm, false, "norms subtract the mean (LayerNorm)")                         \
  FIELD(bool, norm_adds_one, false, "norms are stored as w and applied as 1 + w")                 \
  FIELD(bool, scales_embedding, false, "embeddings are times sqrt(hidden_size)")                  \
  FIELD(bool, norms_embedding, false, "embeddings are normed, by weights where there are any")    \
  FIELD(std::vector<Role>, plain_norms, {}, "norms that have no weights, by role")                \
  FIELD(int64_t, extra_embeddings, 0, "rows of the embedding behind those of the vocabulary")     \
  FIELD(int64_t, position_offset, 0, "rows of the table of positions before that of position 0")  \
  FIELD(bool, rope_is_interleaved, false, "RoPE turns pairs (2i, 2i + 1) instead of halves")      \
  FIELD(bool, rope_turns_back, false, "RoPE turns by the negative angle")                         \
  FIELD(bool, weighs_expert_inputs, false, "a router's weights multiply inputs, not outputs")     \
  FIELD(bool, counts_rotary_dim, false, "rotary_dim is a number of dimensions, not a share")      \
  FIELD(bool, has_latent_attention, false, "MLA: the cache holds a latent")                       \
  FIELD(bool, has_latent_by_layer, false,                                                         \
        "per_layer_config gives layers with a window latents and heads of their own sizes")       \
  FIELD(bool, norms_after_rope, false, "Q and K are normed after they turn")                      \
  FIELD(bool, has_query_beta, false, "llama_4_scaling_beta lets queries grow")                    \
  FIELD(bool, has_rope_alpha, false, "rope_scaling's alpha raises theta")                         \
  FIELD(Indexer, indexer, Indexer::kNone,                                                         \
        "indexer of sparse attention, by the RoPE of its queries and keys; of blocks, or beside " \
        "a latent")                                                                               \
  FIELD(bool, reads_blocks_of_keys, false,                                                        \
        "attention over more keys than index_topk_blocks blocks hold, which is refused, reads "   \
        "those that an indexer selects")                                                          \
  FIELD(bool, has_query_gate, false, "a sigmoid of the input multiplies the output of attention") \
  FIELD(bool, has_softplus_gate, false, "a softplus, instead of the sigmoid")                     \
  FIELD(bool, has_heads_by_layer, false, "num_attention_heads_per_layer lists the heads of Q")    \
  FIELD(bool, has_experts_by_layer, false, "num_experts_per_tok may list a number a layer")       \
  FIELD(bool, has_value_dim, false, "v_head_dim is the width of V's heads")                       \
  FIELD(bool, has_window_heads, false, "layers with a window have twice the KV heads")            \
  FIELD(bool, has_window_query_heads, false,                                                      \
        "num_sliding_attention_heads are the heads of Q in layers with a window")                 \
  FIELD(bool, has_global_heads, false, "layers without a window have heads of their own sizes")   \
  FIELD(bool, shares_caches, false, "the last num_kv_shared_layers layers read earlier caches")   \
  FIELD(bool, has_mlp_by_layer, false,                                                            \
        "intermediate_size and activation_sparsity_pattern may list a value a layer")             \
  FIELD(bool, adds_ngrams, false,                                                                 \
        "layers of ple_layer_ids add embeddings of n-grams to the residual streams")              \
  FIELD(bool, replaces_layer_inputs, false,                                                       \
        "tokens behind the table of the layers' own inputs read its row 0")                       \
  FIELD(bool, norms_values, false, "V is normed by head, without a weight")                       \
  FIELD(bool, ends_with_full_attention, false,                                                    \
        "the last layer has full attention, also where layer_types says otherwise")               \
  FIELD(bool, scores_shared_experts, false,                                                       \
        "the router scores n_shared_experts shared experts, too, which every token has")          \
  FIELD(bool, has_mlp_beside_experts, false,                                                      \
        "layers with experts run an MLP, too, each between norms")                                \
  FIELD(bool, has_prediction_layers, false, "layers for multi-token prediction follow the last")  \
  FIELD(DraftLayer, draft, DraftLayer::kNone,                                                     \
        "names of the first of them, which engines run as a draft")                               \
  FIELD(bool, masks_first_draft, false, "row 0 of the draft's input has zeros for its embedding") \
  /* {} for k or v; empty: the attention itself */                                                \
  FIELD(std::string_view, draft_scales, "",                                                       \
        "the module that gets the draft's k_scale and v_scale, below its attention")              \
  FIELD(int64_t, intermediate_multiple, 0,                                                        \
        "of hidden_size, where intermediate_size is absent; 0: it is required")                   \
  FIELD(Mixer, recurrence, Mixer::kNone, "mixer of the layers without attention, or beside it")   \
  FIELD(bool, has_single_blocks, false, "a layer is a mixer or an MLP, not both")                 \
  FIELD(bool, mixes_beside_attention, false,                                                      \
        "every layer has attention and a mixer, which read the same input")                       \
  FIELD(ExpertLayers, expert_layers, ExpertLayers::kNone, "the layers with experts")              \
  FIELD(Positions, positions, Positions::kRope, "encoding of positions")                          \
  FIELD(LocalRope, local_rope, LocalRope::kSame, "RoPE of layers with a sliding window")          \
  FIELD(SlidingWindow, sliding_window, SlidingWindow::kNone, "the layers with a sliding window")  \
  FIELD(QkNorm, qk_norm, QkNorm::kPerHead,                                                        \
        "norm of Q and K, where tensors of these roles are listed")                               \
  FIELD(FusedQkv, fused_qkv, FusedQkv::kConcatenated,                                             \
        "order of the rows of a tensor query_key_value")                                          \
  FIELD(RouterScore, router_score, RouterScore::kSoftmax, "function of a router's logits")        \
  FIELD(GroupScore, group_score, GroupScore::kNone, "score of a group of experts")                \
  FIELD(                                                                                          \
      std::vector<NamePrefix>, prefixes, {{"model."}},                                            \
      "before the names of the backbone's tensors, and of lm_head's; the first that fits counts") \
  FIELD(std::string_view, layers_name, "layers.", "between prefix and number of a layer")         \
  FIELD(std::string_view, attention_module, "self_attn",                                          \
        "the module that gets k_scale and v_scale, below a layer")                                \
  FIELD(std::string_view, saved_attention_module, "",                                             \
        "that module under the names that transformers saves, where it is another")               \
  FIELD(TensorRows, model_tensors, {}, "tensors outside of the layers")                           \
  FIELD(TensorRows, layer_tensors, {}, "tensors of each layer")                                   \
  FIELD(std::vector<std::string_view>, ignored_suffixes, {},                                      \
        "ends of the names of tensors that the text model does not use")                          \
  FIELD(std::vector<std::string_view>, ignored_prefixes, {}, "beginnings of such names")          \
  FIELD(std::vector<std::string_view>, ignored_without_cache, {},                                 \
        "tensors of layers that read another layer's cache, which nothing reads")

/// A model family as a set of variations; those of lib/family/families say how they differ from
/// another one.
struct Architecture {
#define KVCAL_FIELD(type, name, usual, about) type name = usual;
  KVCAL_ARCHITECTURE_FIELDS(KVCAL_FIELD)
#undef KVCAL_FIELD
  PrepareHook prepare = nullptr;  ///< a file has that of the family whose resolve it names

  bool has_experts() const {
    return expert_layers != ExpertLayers::kNone;
  }
};

/// Calls visit(name, field, comment) for each field.
template <class Visit>
void visit_fields(Architecture& family, Visit&& visit) {
#define KVCAL_VISIT(type, name, usual, about) visit(#name, family.name, about);
  KVCAL_ARCHITECTURE_FIELDS(KVCAL_VISIT)
#undef KVCAL_VISIT
}

/// What a family that is like this one starts from: all but name, types and description.
Architecture like(const Architecture& family);

/// The rows, where those without a shape have that of their role.
TensorRows with_usual_shapes(TensorRows rows);

/// All families, by name, as users see them.
const std::vector<Architecture>& architectures();

}  // namespace kvcal
