#pragma once

#include <string_view>
#include <vector>

#include "family/architecture.h"

namespace kvcal {

// The fields of a family's file, once for the reader, the template and the checks of both. Each
// function calls visit(name, value, comment) for every field of a record, in the file's order; a
// comment ends in nothing, and is empty where the record's own says enough.

/// JSON in a string_view of Architecture; a map in the file.
struct JsonText {
  std::string_view& text;
};
/// A value of any kind as JSON in a string_view.
struct JsonValue {
  std::string_view& text;
};
/// Conditions of a row that must hold, or must not.
struct ConditionList {
  std::vector<Condition>& conditions;
  bool wanted;
};
/// Architecture::resolve, by the name of the built-in family that has it.
struct HookName {
  void (*&hook)(const Json&, ModelConfig&);
};

template <class Visit>
void visit_fields(KeyAlias& alias, Visit&& visit) {
  visit("key", alias.key, "");
  visit("alias", alias.alias, "");
}

template <class Visit>
void visit_fields(SwitchKey& entry, Visit&& visit) {
  visit("key", entry.key, "");
  visit("sets", entry.field, "");
}

template <class Visit>
void visit_fields(NumberKey& entry, Visit&& visit) {
  visit("key", entry.key, "");
  visit("sets", entry.field, "");
  visit("reading", entry.reading, "");
}

template <class Visit>
void visit_fields(FixedKey& entry, Visit&& visit) {
  visit("key", entry.key, "");
  visit("value", JsonValue{entry.value}, "");
}

template <class Visit>
void visit_fields(NamePrefix& prefix, Visit&& visit) {
  visit("backbone", prefix.backbone, "");
  visit("head", prefix.head, "");
}

template <class Visit>
void visit_fields(SplitRow& row, Visit&& visit) {
  visit("role", row.role, "");
  visit("name", row.name, "");
}

template <class Visit>
void visit_fields(TensorRow& row, Visit&& visit) {
  visit("role", row.role, "");
  visit("name", row.name, "");
  visit("shape", row.shape, "");
  visit("when", ConditionList{row.conditions, true}, "");
  visit("unless", ConditionList{row.conditions, false}, "");
  visit("layout", row.layout, "");
  visit("repeat", row.repeat, "");
  visit("split", row.split, "");
  visit("module", row.module, "");
  visit("is_flat", row.is_flat, "");
  visit("is_run_by_layers", row.is_run_by_layers, "");
  visit("is_run_by_last_layer", row.is_run_by_last_layer, "");
}

/// Fields that a record needs, by its type.
inline std::vector<std::string_view> required_fields(const KeyAlias&) {
  return {"key", "alias"};
}
inline std::vector<std::string_view> required_fields(const SwitchKey&) {
  return {"key", "sets"};
}
inline std::vector<std::string_view> required_fields(const NumberKey&) {
  return {"key", "sets"};
}
inline std::vector<std::string_view> required_fields(const FixedKey&) {
  return {"key", "value"};
}
inline std::vector<std::string_view> required_fields(const NamePrefix&) {
  return {"backbone"};
}
inline std::vector<std::string_view> required_fields(const SplitRow&) {
  return {"role", "name"};
}
inline std::vector<std::string_view> required_fields(const TensorRow&) {
  return {"role", "name", "shape"};
}

/// A part of an Architecture that a file gives as a map.
template <class Value>
concept IsRecord = requires(const Value& value) {
  required_fields(value);
};

template <class Visit>
void visit_names(Architecture& family, Visit&& visit) {
  visit("name", family.name, "name of the family, in messages and manifests");
  visit("model_types", family.model_types,
        "the values of config.json's model_type that it is for; none: any that is not known");
  visit("attention_class", family.attention_class,
        "class of its attention modules, which targets of recipes name");
  visit("description", family.description, "well-known models of the family");
}

template <class Visit>
void visit_keys(Architecture& family, Visit&& visit) {
  visit("defaults", JsonText{family.defaults}, "values of keys that config.json may leave out");
  visit("text_defaults", JsonText{family.text_defaults},
        "more of them, for a text_config in a multimodal checkpoint");
  visit("aliases", family.aliases, "other names of keys: the usual key, and that of this family");
  visit("switches", family.switches, "keys that are true or false, and the switch that each sets");
  visit("numbers", family.numbers, "keys that hold a number, and the number that each sets");
  visit("fixed", family.fixed, "keys with one supported value, which may be absent");
  visit("known_keys", family.known_keys,
        "further keys that may stand in config.json, because they change nothing");
  visit("resolve", HookName{family.resolve},
        "a hook in C++ for keys that the fields above cannot express: that of a built-in family");
}

template <class Visit>
void visit_maths(Architecture& family, Visit&& visit) {
  visit("centers_norm", family.centers_norm, "norms subtract the mean (LayerNorm)");
  visit("norm_adds_one", family.norm_adds_one, "norms are stored as w and applied as 1 + w");
  visit("scales_embedding", family.scales_embedding, "embeddings are times sqrt(hidden_size)");
  visit("norms_embedding", family.norms_embedding, "embeddings are normed, without a weight");
  visit("plain_norms", family.plain_norms, "norms that have no weights, by role");
  visit("extra_embeddings", family.extra_embeddings,
        "rows of the embedding behind those of the vocabulary");
  visit("position_offset", family.position_offset,
        "rows of the table of positions before that of position 0");
  visit("rope_is_interleaved", family.rope_is_interleaved,
        "RoPE turns pairs (2i, 2i + 1) instead of halves");
  visit("rope_turns_back", family.rope_turns_back, "RoPE turns by the negative angle");
  visit("weighs_expert_inputs", family.weighs_expert_inputs,
        "a router's weights multiply inputs, not outputs");
  visit("counts_rotary_dim", family.counts_rotary_dim,
        "rotary_dim is a number of dimensions, not a share");
  visit("has_latent_attention", family.has_latent_attention, "MLA: the cache holds a latent");
  visit("norms_after_rope", family.norms_after_rope, "Q and K are normed after they turn");
  visit("has_rope_alpha", family.has_rope_alpha, "rope_scaling's alpha raises theta");
  visit("indexer", family.indexer,
        "indexer of sparse attention beside a latent, by the RoPE of its queries and keys");
  visit("has_query_gate", family.has_query_gate,
        "a sigmoid of the input multiplies the output of attention");
  visit("has_softplus_gate", family.has_softplus_gate, "a softplus, instead of the sigmoid");
  visit("has_heads_by_layer", family.has_heads_by_layer,
        "num_attention_heads_per_layer lists the heads of Q");
  visit("has_value_dim", family.has_value_dim, "v_head_dim is the width of V's heads");
  visit("has_window_heads", family.has_window_heads,
        "layers with a window have twice the KV heads");
  visit("has_global_heads", family.has_global_heads,
        "layers without a window have heads of their own sizes");
  visit("shares_caches", family.shares_caches,
        "the last num_kv_shared_layers layers read earlier caches");
  visit("has_mlp_by_layer", family.has_mlp_by_layer,
        "intermediate_size and activation_sparsity_pattern may list a value a layer");
  visit("replaces_layer_inputs", family.replaces_layer_inputs,
        "tokens behind the table of the layers' own inputs read its row 0");
  visit("norms_values", family.norms_values, "V is normed by head, without a weight");
  visit("ends_with_full_attention", family.ends_with_full_attention,
        "the last layer has full attention, also where layer_types says otherwise");
  visit("has_mlp_beside_experts", family.has_mlp_beside_experts,
        "layers with experts run an MLP, too, each between norms");
  visit("has_prediction_layers", family.has_prediction_layers,
        "layers for multi-token prediction follow the last");
  visit("draft", family.draft, "names of the first of them, which engines run as a draft");
  visit("masks_first_draft", family.masks_first_draft,
        "row 0 of the draft's input has zeros for its embedding");
  visit("draft_scales", family.draft_scales,
        "the module that gets the draft's k_scale and v_scale, below its attention");
  visit("intermediate_multiple", family.intermediate_multiple,
        "of hidden_size, where intermediate_size is absent; 0: it is required");
  visit("recurrence", family.recurrence, "mixer of the layers without attention, or beside it");
  visit("has_single_blocks", family.has_single_blocks, "a layer is a mixer or an MLP, not both");
  visit("mixes_beside_attention", family.mixes_beside_attention,
        "every layer has attention and a mixer, which read the same input");
  visit("expert_layers", family.expert_layers, "the layers with experts");
  visit("positions", family.positions, "encoding of positions");
  visit("local_rope", family.local_rope, "RoPE of layers with a sliding window");
  visit("sliding_window", family.sliding_window, "the layers with a sliding window");
  visit("qk_norm", family.qk_norm, "norm of Q and K, where tensors of these roles are listed");
  visit("fused_qkv", family.fused_qkv, "order of the rows of a tensor query_key_value");
  visit("router_score", family.router_score, "function of a router's logits");
  visit("group_score", family.group_score, "score of a group of experts");
}

template <class Visit>
void visit_tensors(Architecture& family, Visit&& visit) {
  visit("prefixes", family.prefixes,
        "before the names of the backbone's tensors, and of lm_head's; the first that fits counts");
  visit("layers_name", family.layers_name, "between prefix and number of a layer");
  visit("attention_module", family.attention_module,
        "the module that gets k_scale and v_scale, below a layer");
  visit("model_tensors", family.model_tensors, "tensors outside of the layers");
  visit("layer_tensors", family.layer_tensors, "tensors of each layer");
  visit("ignored_suffixes", family.ignored_suffixes,
        "ends of the names of tensors that the text model does not use");
  visit("ignored_prefixes", family.ignored_prefixes, "beginnings of such names");
  visit("ignored_without_cache", family.ignored_without_cache,
        "tensors of layers that read another layer's cache, which nothing reads");
}

template <class Visit>
void visit_fields(Architecture& family, Visit&& visit) {
  visit_names(family, visit);
  visit_keys(family, visit);
  visit_maths(family, visit);
  visit_tensors(family, visit);
}

}  // namespace kvcal
