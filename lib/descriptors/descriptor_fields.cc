#include "descriptors/descriptor_fields.h"

#include <algorithm>
#include <initializer_list>
#include <set>

namespace kvcal {

EnumText text_of(Dim) {
#define KVCAL_TEXT(name, size) #name ","
  constexpr std::string_view kAll = KVCAL_DIMS(KVCAL_TEXT);
#undef KVCAL_TEXT
  // The last is of drafts alone, and stands in no file.
  return {"dimension", kAll.substr(0, kAll.find(",kTwiceHidden"))};
}
EnumText text_of(RouterScore) {
  return {"choice of router_score", "kSoftmax, kSigmoid, kSparseMixer"};
}
EnumText text_of(GroupScore) {
  return {"choice of group_score", "kNone, kLargest, kSumOfTwoLargest"};
}

#define KVCAL_NAMED(name) \
  { #name, &ModelConfig::name }

NameTable<bool ModelConfig::*> words_of(bool ModelConfig::*const*) {
  return {"switch",
          {KVCAL_NAMED(attention_bias),
           KVCAL_NAMED(output_bias),
           KVCAL_NAMED(mlp_bias),
           KVCAL_NAMED(lm_head_bias),
           KVCAL_NAMED(tie_word_embeddings),
           KVCAL_NAMED(has_qk_norm),
           KVCAL_NAMED(has_mlp_norm),
           KVCAL_NAMED(has_norm_weights),
           KVCAL_NAMED(has_final_norm),
           KVCAL_NAMED(projects_embedding),
           KVCAL_NAMED(has_output_norms),
           KVCAL_NAMED(norms_stream),
           KVCAL_NAMED(activation_adds_one),
           KVCAL_NAMED(parallel_residual),
           KVCAL_NAMED(norm_topk_prob),
           KVCAL_NAMED(centers_norm),
           KVCAL_NAMED(gates_attention),
           KVCAL_NAMED(gates_whole_heads),
           KVCAL_NAMED(has_saved_names),
           KVCAL_NAMED(rope_is_interleaved),
           KVCAL_NAMED(has_query_rank),
           KVCAL_NAMED(has_shared_expert),
           KVCAL_NAMED(corrects_router),
           KVCAL_NAMED(has_expert_latent),
           KVCAL_NAMED(norms_expert_latent),
           KVCAL_NAMED(experts_in_out),
           KVCAL_NAMED(has_conv_bias),
           KVCAL_NAMED(mixer_bias),
           KVCAL_NAMED(mixer_output_bias),
           KVCAL_NAMED(has_full_rank_gate),
           KVCAL_NAMED(has_mixer_norm),
           KVCAL_NAMED(norms_before_gate),
           KVCAL_NAMED(multi_query),
           KVCAL_NAMED(new_decoder_architecture),
           KVCAL_NAMED(has_parallel_norms),
           KVCAL_NAMED(has_layer_inputs),
           KVCAL_NAMED(attends_residuals),
           KVCAL_NAMED(scales_active_stream)}};
}

NameTable<float ModelConfig::*> words_of(float ModelConfig::*const*) {
  return {"number",
          {KVCAL_NAMED(norm_eps),
           KVCAL_NAMED(activation_limit),
           KVCAL_NAMED(activation_beta),
           KVCAL_NAMED(up_softcap),
           KVCAL_NAMED(embedding_multiplier),
           KVCAL_NAMED(residual_multiplier),
           KVCAL_NAMED(logits_multiplier),
           KVCAL_NAMED(head_input_multiplier),
           KVCAL_NAMED(attention_input_multiplier),
           KVCAL_NAMED(attention_output_multiplier),
           KVCAL_NAMED(mixer_input_multiplier),
           KVCAL_NAMED(mixer_output_multiplier),
           KVCAL_NAMED(mlp_output_multiplier),
           KVCAL_NAMED(attention_stream_multiplier),
           KVCAL_NAMED(mixer_stream_multiplier),
           KVCAL_NAMED(mlp_stream_multiplier),
           KVCAL_NAMED(key_multiplier),
           KVCAL_NAMED(gate_multiplier),
           KVCAL_NAMED(softmax_scale),
           KVCAL_NAMED(attention_softcap),
           KVCAL_NAMED(logits_softcap),
           KVCAL_NAMED(routed_scaling_factor),
           KVCAL_NAMED(qkv_limit),
           KVCAL_NAMED(value_multiplier),
           KVCAL_NAMED(router_jitter),
           KVCAL_NAMED(topk_norm_order)}};
}

#undef KVCAL_NAMED
#define KVCAL_NAMED(name) \
  { #name, &LayerConfig::name }

NameTable<bool LayerConfig::*> words_of(bool LayerConfig::*const*) {
  return {"switch",
          {KVCAL_NAMED(has_attention), KVCAL_NAMED(has_recurrence), KVCAL_NAMED(has_mixer),
           KVCAL_NAMED(has_window), KVCAL_NAMED(has_own_cache), KVCAL_NAMED(has_value_projection),
           KVCAL_NAMED(has_mlp), KVCAL_NAMED(is_moe), KVCAL_NAMED(norms_heads),
           KVCAL_NAMED(has_indexer), KVCAL_NAMED(reads_selected), KVCAL_NAMED(has_ngrams)}};
}

#undef KVCAL_NAMED

NameTable<Role> words_of(const Role*) {
  NameTable<Role> table{"role", {}};
  for (const RoleRow& row : role_rows())
    if (row.group != "drafts") table.rows.emplace_back(row.name, row.role);
  return table;
}

std::vector<std::string> hook_names() {
  std::vector<std::string> names;
  for (const Architecture& family : architectures())
    if (family.resolve) names.emplace_back(family.name);
  return names;
}

namespace {

const std::vector<TensorRow>& table_of(const Architecture& family, bool is_of_layer) {
  return is_of_layer ? family.layer_tensors : family.model_tensors;
}

std::string role_word(Role role) {
  return std::string(row_of(role).name);
}

/// "[vocab, hidden]", with layout and repetition where they are not the usual ones.
std::string signature_text(const TensorRow& row) {
  const auto word = [](Dim dim) { return words<Dim>().word_of(dim); };
  std::string text = "[" + join(row.shape, ", ", word) + "]";
  if (row.layout != Layout::kOutIn) text += " " + words<Layout>().word_of(row.layout);
  if (row.repeat != Dim::kOne) text += " for each of " + word(row.repeat);
  if (row.is_flat) text += ", one below the other";
  return text;
}

/// Forms in which built-in families have a role: the forward pass reads these. The rows of lm_head
/// may be called vocab, too: they are others only where a config.json has an output_vocab_size.
std::set<std::string> known_signatures(Role role, bool is_of_layer) {
  std::set<std::string> known;
  for (const Architecture& family : architectures())
    for (const TensorRow& row : table_of(family, is_of_layer)) {
      if (row.role != role) continue;
      known.insert(signature_text(row));
      TensorRow of_vocab = row;
      std::ranges::replace(of_vocab.shape, Dim::kOutputVocab, Dim::kVocab);
      known.insert(signature_text(of_vocab));
      // Where nothing projects the embedding, its width is that of the residual stream.
      for (TensorRow unprojected : {row, of_vocab}) {
        std::ranges::replace(unprojected.shape, Dim::kEmbeddingWidth, Dim::kHidden);
        known.insert(signature_text(unprojected));
      }
    }
  return known;
}

void check_numbers(const TensorRow& row) {
  if (row.is_numbered() && row.repeat == Dim::kOne)
    fail("name '", row.name, "' has {} for a number, and there is no repeat");
  if (row.is_flat && (!row.is_stacked() || row.shape.size() != 2))
    fail("is_flat is for a matrix for each of repeat, which '", row.name, "' is not");
  if (!row.split.empty() && !row.is_stacked())
    fail("split is for a tensor that holds all of repeat, which '", row.name, "' does not");
  for (const SplitRow& part : row.split)
    if (numbered(part.name, 0) == part.name)
      fail("name '", part.name, "' of split has no {} for the number of an expert");
}

bool has_role(const Architecture& family, Role role) {
  const auto has = [&](const TensorRow& row) { return row.role == role; };
  return std::ranges::any_of(family.model_tensors, has) ||
         std::ranges::any_of(family.layer_tensors, has);
}

bool has_any(const Architecture& family, std::initializer_list<Role> roles) {
  return std::ranges::any_of(roles, [&](Role role) { return has_role(family, role); });
}

/// Throws Error unless the tables have one of the roles.
void need(const Architecture& family, std::string_view why, std::initializer_list<Role> roles) {
  if (!has_any(family, roles))
    fail(why, " needs a tensor with the role ", join(roles, " or ", role_word), ", found none");
}

void check_attention(const Architecture& family) {
  using enum Role;
  if (family.has_latent_attention) {
    need(family, "has_latent_attention", {kQuery, kQueryUp});
    if (has_role(family, kQueryUp)) need(family, "role query_up", {kQueryDown});
    for (const Role role : {kLatent, kLatentNorm, kLatentUp})
      need(family, "has_latent_attention", {role});
  } else {
    if (family.has_latent_by_layer)
      fail("has_latent_by_layer is true, and has_latent_attention is false");
    need(family, "attention", {kQuery, kQueryAndGate, kQueryKeyValue});
    need(family, "attention", {kKey, kQueryKeyValue});
    need(family, "attention", {kValue, kQueryKeyValue});
  }
  need(family, "attention", {kOutput});
  if (family.has_query_gate) need(family, "has_query_gate", {kQueryGate, kQueryAndGate});
  if (!family.has_query_gate && has_any(family, {kQueryGate, kQueryAndGate}))
    fail("has_query_gate is false, and there is a tensor with the role query_gate");
  for (const TensorRow& row : family.layer_tensors) {
    const bool is_key = row.role == kKey || row.role == kQueryKeyValue || row.role == kLatent;
    const auto is_in = [&](std::string_view module) {
      return !module.empty() && row.name.starts_with(std::string(module) + ".");
    };
    if (is_key && !is_in(family.attention_module) && !is_in(family.saved_attention_module))
      fail("attention_module is '", family.attention_module, "', and the tensor of the role ",
           role_word(row.role), " is '", row.name, "', which lies outside of it");
  }
}

void check_indexer(const Architecture& family) {
  using enum Role;
  const bool has_indexer = family.indexer != Indexer::kNone;
  const bool has_blocks = family.indexer == Indexer::kBlocks;
  if (has_blocks) {
    for (const Role role : {kIndexerQueryKey, kIndexerQueryNorm, kIndexerKeyNorm})
      need(family, "indexer", {role});
    return;
  }
  if (has_indexer && !family.has_latent_attention)
    fail("indexer is ", words<Indexer>().word_of(family.indexer),
         ", and has_latent_attention is false");
  if (has_indexer) need(family, "indexer", {kQueryUp});
  for (const Role role :
       {kIndexerQuery, kIndexerKey, kIndexerKeyNorm, kIndexerKeyNormBias, kIndexerWeights}) {
    if (has_indexer) need(family, "indexer", {role});
    if (!has_indexer && has_role(family, role))
      fail("indexer is none, and there is a tensor with the role ", role_word(role));
  }
}

/// Streams that gates mix have all their tensors, and n-grams are added to such streams.
void check_streams(const Architecture& family) {
  using enum Role;
  const bool has_mix = has_role(family, kAttentionMixDown);
  for (const Role role :
       {kAttentionMixNorm, kAttentionMixDown, kAttentionMixUp, kAttentionShares, kMlpMixNorm,
        kMlpMixDown, kMlpMixUp, kMlpShares, kFinalMixNorm, kFinalMixDown, kFinalMixUp}) {
    if (has_mix) need(family, "role attention_mix_down", {role});
    if (!has_mix && has_role(family, role))
      fail("there is a tensor with the role ", role_word(role), ", and none with the role ",
           role_word(kAttentionMixDown));
  }
  if (family.adds_ngrams) need(family, "adds_ngrams", {kAttentionMixDown});
  for (const Role role :
       {kNgramEmbedding, kNgramFactors, kNgramSizes, kNgramOffsets, kNgramKey, kNgramValue,
        kNgramKeyNorm, kNgramStreamNorm, kNgramConvNorm, kNgramConv}) {
    if (family.adds_ngrams) need(family, "adds_ngrams", {role});
    if (!family.adds_ngrams && has_role(family, role))
      fail("adds_ngrams is false, and there is a tensor with the role ", role_word(role));
  }
}

void check_qk_norm(const Architecture& family) {
  for (const TensorRow& row : family.layer_tensors) {
    if (row.role != Role::kQueryNorm && row.role != Role::kKeyNorm) continue;
    const bool has_width = row.shape == std::vector<Dim>{Dim::kQueryWidth} ||
                           row.shape == std::vector<Dim>{Dim::kKvWidth};
    const QkNorm found = has_width ? QkNorm::kWhole
                         : row.shape.size() == 2 || row.repeat != Dim::kOne
                             ? QkNorm::kPerHeadOwnWeight
                             : QkNorm::kPerHead;
    if (found != family.qk_norm)
      fail("qk_norm is ", words<QkNorm>().word_of(family.qk_norm), ", and the tensor '", row.name,
           "' is ", signature_text(row), ", as of ", words<QkNorm>().word_of(found));
  }
}

void check_feed_forward(const Architecture& family) {
  using enum Role;
  if (family.has_experts()) {
    need(family, "expert_layers", {kRouter});
    need(family, "expert_layers", {kExpertUp, kExpertGateUp});
    need(family, "expert_layers", {kExpertDown});
  } else if (has_any(family, {kRouter, kExpertUp, kExpertGateUp, kExpertDown})) {
    fail("expert_layers is none, and there is a tensor of experts");
  }
  if (family.has_experts() && !has_role(family, kDown)) return;
  need(family, "an MLP", {kUp, kGateUp});
  need(family, "an MLP", {kDown});
}

/// Throws Error for a row that stands twice, without conditions that could tell them apart.
void check_names(const std::vector<TensorRow>& table) {
  for (size_t i = 0; i < table.size(); ++i)
    for (size_t j = i + 1; j < table.size(); ++j)
      if (table[i].name == table[j].name && table[i].role == table[j].role &&
          table[i].conditions.empty() && table[j].conditions.empty())
        fail("tensor '", table[j].name, "' is listed twice");
}

void check_keys(const Architecture& family) {
  for (const std::string_view text : {family.defaults, family.text_defaults})
    if (!parse_json(text).is_object()) fail("defaults are no map: ", text);
  for (const FixedKey& fixed : family.fixed) parse_json(fixed.value);
  if (family.extra_embeddings < 0 || family.extra_embeddings > 1024)
    fail("extra_embeddings is ", family.extra_embeddings, ", expected 0 to 1024");
  if (family.position_offset < 0 || family.position_offset > 1024)
    fail("position_offset is ", family.position_offset, ", expected 0 to 1024");
  if (family.intermediate_multiple < 0 || family.intermediate_multiple > 1024)
    fail("intermediate_multiple is ", family.intermediate_multiple, ", expected 0 to 1024");
}

}  // namespace

void check_row(const TensorRow& row, bool is_of_layer) {
  if (row.name.empty()) fail("name is empty");
  check_numbers(row);
  for (const Condition& condition : row.conditions)
    if (condition.layer && !is_of_layer)
      fail("condition ", words<bool LayerConfig::*>().word_of(condition.layer),
           " is a layer's, and the tensor is outside of the layers");
  const std::set<std::string> known = known_signatures(row.role, is_of_layer);
  if (known.empty())
    fail("role ", role_word(row.role), " is for ", is_of_layer ? "model" : "layer", "_tensors");
  if (!known.contains(signature_text(row)))
    fail("shape of role ", role_word(row.role), " is ", signature_text(row), ", expected ",
         join(known, " or "));
}

void check_architecture(const Architecture& family) {
  if (family.name.empty()) fail("name is missing, expected that of the family");
  if (family.attention_class.empty())
    fail("attention_class is missing, expected the class of its attention modules");
  if (family.prefixes.empty()) fail("prefixes is empty, expected at least one");
  check_keys(family);
  for (const bool is_of_layer : {false, true}) {
    for (const TensorRow& row : table_of(family, is_of_layer))
      in_context("tensor '" + std::string(row.name) + "'", [&] { check_row(row, is_of_layer); });
    check_names(table_of(family, is_of_layer));
  }
  need(family, "every family", {Role::kEmbedding});
  if (std::ranges::find(family.plain_norms, Role::kFinalNorm) == family.plain_norms.end())
    need(family, "every family", {Role::kFinalNorm, Role::kFinalMixNorm});
  need(family, "every family", {Role::kLmHead});
  if (family.positions == Positions::kLearned)
    need(family, "positions: learned", {Role::kPositionEmbedding});
  if (family.recurrence != Mixer::kNone) {
    need(family, "recurrence", {Role::kMixerIn, Role::kMixerQuery, Role::kMixerAll});
    if (family.recurrence != Mixer::kLightning)
      need(family, "recurrence", {Role::kMixerConv, Role::kMixerConvQuery});
    need(family, "recurrence", {Role::kMixerOut});
  }
  check_attention(family);
  check_indexer(family);
  check_streams(family);
  check_qk_norm(family);
  check_feed_forward(family);
}

}  // namespace kvcal
