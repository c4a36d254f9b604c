#include "inspect/family_list.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "family/config_reader.h"
#include "family/model_type_support.h"
#include "family/wrapper.h"

namespace kvcal {
namespace {

std::string_view support_word(Support support) {
  constexpr std::string_view kWords[] = {"runs", "wrapper", "refused", "unknown"};
  return kWords[static_cast<size_t>(support)];
}

/// config.json's model_types, each between quotes.
std::string type_text(const Architecture& architecture, const std::string& quote) {
  return join(architecture.model_types, ", ",
              [&](std::string_view type) { return quote + std::string(type) + quote; });
}

/// The type of a wrapper's text part; text_config names those that differ.
std::string text_type_text(const Wrapper& wrapper, const std::string& quote) {
  const std::string own =
      wrapper.text_type.empty() ? "" : quote + std::string(wrapper.text_type) + quote;
  if (wrapper.rules.has_one_text_type) return own;
  return own.empty() ? "as text_config says" : own + ", or as text_config says";
}

std::string words_or_dash(const Architecture& architecture) {
  const std::string words = join(variation_words(architecture), ", ");
  return words.empty() ? "–" : words;
}

std::string detail_text(const ModelTypeSupport& found, const std::string& quote) {
  const std::string detail(found.detail);
  switch (found.support) {
    case Support::kRuns:
      return "as " + detail;
    case Support::kWrapper:
      return detail.empty() ? "of the text model that text_config names"
                            : "of " + quote + detail + quote;
    case Support::kRefused:
      return detail;
    case Support::kUnknown:
      break;
  }
  return "in no table";
}

}  // namespace

Json families_json() {
  Json families = Json::array(), wrapped = Json::array(), refused = Json::array();
  for (const Architecture& architecture : architectures())
    families.push_back({{"name", architecture.name},
                        {"model_types", architecture.model_types},
                        {"models", architecture.description},
                        {"variations", variation_words(architecture)},
                        {"attention_class", architecture.attention_class}});
  for (const Wrapper& wrapper : wrappers())
    wrapped.push_back({{"model_type", wrapper.model_type},
                       {"models", wrapper.description},
                       {"text_type", wrapper.text_type}});
  for (const RefusedModelType& type : refused_model_types())
    refused.push_back({{"model_type", type.model_type}, {"reason", type.reason}});
  return {{"families", families}, {"wrappers", wrapped}, {"refused", refused}};
}

std::string families_markdown() {
  std::ostringstream out;
  out << "| family | `model_type` | models | apart from Llama | attention class |\n"
         "| --- | --- | --- | --- | --- |\n";
  for (const Architecture& architecture : architectures())
    out << "| " << architecture.name << " | " << type_text(architecture, "`") << " | "
        << architecture.description << " | " << words_or_dash(architecture) << " | `"
        << architecture.attention_class << "` |\n";
  out << "\nMultimodal checkpoints, of which the text model runs:\n\n"
         "| `model_type` | models | text model |\n| --- | --- | --- |\n";
  for (const Wrapper& wrapper : wrappers())
    out << "| `" << wrapper.model_type << "` | " << wrapper.description << " | "
        << text_type_text(wrapper, "`") << " |\n";
  return out.str();
}

std::string families_text() {
  std::ostringstream out;
  for (const Architecture& architecture : architectures()) {
    out << architecture.name << ": " << architecture.description << '\n'
        << "  model_type       " << type_text(architecture, "") << '\n'
        << "  attention class  " << architecture.attention_class << '\n';
    const std::string words = join(variation_words(architecture), ", ");
    out << "  variations       " << (words.empty() ? "as Llama" : words) << '\n';
  }
  out << "\nMultimodal checkpoints, of which the text model runs:\n";
  for (const Wrapper& wrapper : wrappers())
    out << "  " << wrapper.model_type << ": " << wrapper.description << "; text model "
        << text_type_text(wrapper, "") << '\n';
  out << "\nRefused:\n";
  for (const RefusedModelType& type : refused_model_types())
    out << "  " << type.model_type << ": " << type.reason << '\n';
  return out.str();
}

Json model_types_json(const std::vector<std::string>& model_types) {
  Json types = Json::array();
  for (const std::string& type : model_types) {
    const ModelTypeSupport found = support_of(type);
    types.push_back(
        {{"model_type", type}, {"support", support_word(found.support)}, {"detail", found.detail}});
  }
  return {{"types", types}};
}

std::string model_types_text(const std::vector<std::string>& model_types) {
  std::string text;
  for (const std::string& type : model_types) {
    const ModelTypeSupport found = support_of(type);
    text += type + ": " + std::string(support_word(found.support)) + ", " + detail_text(found, "") +
            '\n';
  }
  return text;
}

std::string model_types_markdown(const std::vector<std::string>& model_types) {
  std::string text = "| `model_type` | | |\n| --- | --- | --- |\n";
  for (const std::string& type : model_types) {
    const ModelTypeSupport found = support_of(type);
    text += "| `" + type + "` | " + std::string(support_word(found.support)) + " | " +
            detail_text(found, "`") + " |\n";
  }
  return text;
}

namespace {

enum class Presence { kNever, kOptional, kAlways };

/// A family's descriptor, and its switches where config.json says nothing.
class Family {
 public:
  explicit Family(const Architecture& architecture)
      : architecture_(architecture), defaults_(parse_json(architecture.defaults)) {
    config_.architecture = &architecture;
    config_.rope_is_interleaved = architecture.rope_is_interleaved;
    config_.centers_norm = architecture.centers_norm;
    for (const SwitchKey& entry : architecture.switches)
      if (const auto value = optional_bool(defaults_, entry.key)) config_.*entry.field = *value;
    // Read from a number, not from a switch.
    config_.has_shared_expert =
        default_of("n_shared_experts") || default_of("shared_expert_intermediate_size");
    // One layer and one rope, for what the family does to all of them.
    config_.head_dim = kHeadDim;
    config_.layers.resize(1);
    config_.ropes.resize(1);
    config_.ropes[0].rotary_dim = kHeadDim;
    try {
      if (architecture.resolve) architecture.resolve(defaults_, config_);
    } catch (const Error&) {  // it wants keys that only a model has
    }
  }

  /// Whether the family's checkpoints have tensors of the role.
  Presence presence(Role role) const {
    Presence presence = Presence::kNever;
    for (const auto* rows : {&architecture_.model_tensors, &architecture_.layer_tensors})
      for (const TensorRow& row : *rows)
        if (row.role == role) presence = std::max(presence, presence_of(row));
    return presence;
  }
  bool always(Role role) const { return presence(role) == Presence::kAlways; }

  Presence presence(bool ModelConfig::*field) const {
    if (config_.*field) return Presence::kAlways;
    return has_switch(field) ? Presence::kOptional : Presence::kNever;
  }

  bool has_switch(bool ModelConfig::*field) const {
    return std::ranges::any_of(architecture_.switches,
                               [&](const SwitchKey& entry) { return entry.field == field; });
  }
  /// Whether layers may have a tensor of the role.
  bool has_row(Role role) const { return kvcal::has_row(architecture_, role); }
  /// Whether models may have one outside of their layers.
  bool has_model_row(Role role) const {
    return std::ranges::find(architecture_.model_tensors, role, &TensorRow::role) !=
           architecture_.model_tensors.end();
  }

  /// Whether layers have positions only where config.json asks for them.
  bool drops_rope() const { return config_.layers[0].rope == kNoRope; }
  /// Whether a part of each head turns, whatever config.json says.
  bool cuts_rope() const { return config_.ropes[0].rotary_dim != kHeadDim; }

  bool reads_number(float ModelConfig::*field) const {
    return std::ranges::any_of(architecture_.numbers,
                               [&](const NumberKey& number) { return number.field == field; });
  }

  /// A default by the name that Llama's config.json has for it.
  const Json* default_of(std::string_view key) const {
    if (const Json* value = find_field(defaults_, key)) return value;
    for (const KeyAlias& alias : architecture_.aliases)
      if (alias.key == key)
        if (const Json* value = find_field(defaults_, alias.alias)) return value;
    return nullptr;
  }

 private:
  static constexpr int64_t kHeadDim = 8;

  Presence presence_of(const TensorRow& row) const {
    Presence presence = Presence::kAlways;
    for (const Condition& condition : row.conditions) {
      if (!condition.model || config_.*condition.model == condition.wanted) continue;
      presence =
          std::min(presence, has_switch(condition.model) ? Presence::kOptional : Presence::kNever);
    }
    return presence;
  }

  const Architecture& architecture_;
  Json defaults_;
  ModelConfig config_;
};

using Words = std::vector<std::string>;

void add(Words& words, Presence presence, const std::string& word) {
  if (presence == Presence::kAlways) words.push_back(word);
  if (presence == Presence::kOptional) words.push_back("optional " + word);
}
void add(Words& words, bool holds, const std::string& word) {
  if (holds) words.push_back(word);
}

void add_norms(Words& words, const Architecture& architecture, const Family& family) {
  add(words, architecture.centers_norm,
      family.always(Role::kFinalNormBias) ? "LayerNorm with bias" : "LayerNorm");
  add(words, architecture.norm_adds_one, "norm of 1 + w");
  add(words, !architecture.plain_norms.empty(),
      family.has_switch(&ModelConfig::has_norm_weights) ? "optional norms without weights"
                                                        : "norms without weights");
  const bool before = family.presence(Role::kInputNorm) != Presence::kNever;
  const bool behind = family.always(Role::kAttentionOutputNorm);
  add(words, before && behind, "norms before and behind");
  add(words, !before && behind, "norms behind");
  add(words, family.presence(&ModelConfig::norms_stream), "norms of the residual stream");
  const QkNorm kind = architecture.qk_norm;
  const bool has_key_norm = family.presence(Role::kKeyNorm) != Presence::kNever;
  if (has_key_norm)
    add(words, family.presence(Role::kKeyNorm),
        kind == QkNorm::kWhole              ? "q/k norm over all heads"
        : kind == QkNorm::kPerHeadOwnWeight ? "q/k norm with a weight a head"
                                            : "q/k norm");
  add(words, has_key_norm && architecture.norms_after_rope, "norms of q and k after rope");
}

void add_attention(Words& words, const Architecture& architecture, const Family& family) {
  add(words, architecture.has_latent_attention, "MLA");
  add(words, architecture.has_latent_by_layer, "latents of other sizes in layers with a window");
  add(words, family.always(Role::kLatentKeyNorm), "norm of the rotated key");
  add(words, architecture.indexer != Indexer::kNone,
      architecture.indexer == Indexer::kBlocks ? "attention over selected blocks of keys"
                                               : "sparse attention");
  add(words, family.presence(&ModelConfig::multi_query), "multi-query");
  const bool is_fused = family.presence(Role::kQueryKeyValue) != Presence::kNever;
  const bool has_bias = family.always(is_fused ? Role::kQueryKeyValueBias : Role::kQueryBias);
  const bool has_all = has_bias && family.always(Role::kOutputBias) &&
                       (family.always(Role::kUpBias) || family.always(Role::kExpertDownBias));
  add(words, has_bias,
      has_all                            ? "biases"
      : family.always(Role::kOutputBias) ? "q/k/v/o bias"
                                         : "q/k/v bias");
  add(words, is_fused,
      architecture.fused_qkv == FusedQkv::kByGroup      ? "fused q/k/v by group"
      : architecture.fused_qkv == FusedQkv::kFourBlocks ? "fused q/v/k in four blocks"
                                                        : "fused q/k/v");
  add(words, family.always(Role::kSinks), "sinks");
  add(words, architecture.has_query_gate,
      architecture.has_softplus_gate ? "attention gated by a softplus" : "gated attention");
  add(words, family.always(Role::kAttendedNorm), "norm of attention's output");
  add(words, family.has_row(Role::kRelative), "logits by distance");
  add(words, family.has_row(Role::kKeyConv), "convolutions of k and v");
  add(words, architecture.has_heads_by_layer, "heads by layer");
  add(words, architecture.has_value_dim, "V narrower than K");
  add(words, architecture.has_window_heads, "more KV heads in layers with a window");
  add(words, family.reads_number(&ModelConfig::qkv_limit), "optional limit of q/k/v");
  add(words, family.reads_number(&ModelConfig::value_multiplier), "scale of V");
  add(words, architecture.norms_values, "norm of V");
  add(words, architecture.has_window_query_heads, "other heads of Q in layers with a window");
  add(words, architecture.has_global_heads, "other heads, and optionally V = K, without a window");
  add(words, architecture.shares_caches, "optional layers that read another layer's cache");
}

void add_layer_ends(Words& words, const Architecture& architecture, const Family& family) {
  add(words, family.has_row(Role::kLayerInputGate), "optional embeddings a layer");
  add(words, family.always(Role::kStreamRouter), "parallel residual streams");
  add(words, family.always(Role::kAttentionConnection), "hyper-connected residual streams");
  add(words, family.has_row(Role::kAttentionSumScore), "optional attention over residual sums");
  add(words, family.always(Role::kAttentionMixDown), "residual streams that gates mix");
  add(words, architecture.adds_ngrams, "optional embeddings of n-grams");
  add(words, family.always(Role::kLaurelUp), "residual of low rank beside attention");
  add(words, architecture.has_mlp_by_layer, "optional sparse MLPs");
  add(words, family.always(Role::kLayerScalar), "scalar a layer");
}

void add_recurrence(Words& words, const Architecture& architecture, const Family& family) {
  add(words, architecture.recurrence == Mixer::kMamba, "Mamba layers");
  add(words, architecture.recurrence == Mixer::kMamba2,
      architecture.mixes_beside_attention ? "Mamba 2 beside attention" : "Mamba 2 layers");
  add(words, architecture.recurrence == Mixer::kDeltaNet,
      family.has_row(Role::kMixerZDown) || family.has_row(Role::kMixerKeyDecays)
          ? "delta net layers with decays by key"
          : "gated delta net layers");
  add(words, architecture.recurrence == Mixer::kShortConvolution, "short convolution layers");
  add(words, architecture.recurrence == Mixer::kLightning, "lightning attention layers");
  add(words, architecture.has_single_blocks, "a mixer or an MLP a layer");
}

void add_positions(Words& words, const Architecture& architecture, const Family& family) {
  add(words, architecture.positions == Positions::kLearned, "learned positions");
  add(words, architecture.positions == Positions::kSinusoidal, "sinusoidal positions");
  add(words, architecture.positions == Positions::kAlibi, "ALiBi");
  add(words, architecture.positions == Positions::kNone, "no positions");
  add(words, family.drops_rope(), "optional positions");
  add(words, architecture.positions == Positions::kRopeInSlidingLayers,
      "no positions in layers without a window");
  add(words, architecture.positions == Positions::kRopeInSlidingOrDenseLayers,
      "no positions in layers without a window but with experts");
  add(words, architecture.positions == Positions::kRopeWhereListed, "layers without positions");
  add(words, architecture.positions == Positions::kRopeByLayer, "rope by layer");
  add(words, architecture.positions == Positions::kRopeByLayerType, "rope by type of layer");
  add(words, family.presence(&ModelConfig::rope_is_interleaved), "interleaved rope");
  const Json* share = family.default_of("partial_rotary_factor");
  add(words,
      architecture.counts_rotary_dim || family.cuts_rope() ||
          (share && share->is_number() && *share != 1.0),
      "partial rope");
  const Json* ropes = family.default_of("rope_parameters");
  const bool has_two = ropes && ropes->contains("full_attention");
  add(words, has_two || architecture.local_rope != LocalRope::kSame, "two ropes");
}

std::string window_word(const Architecture& architecture, const Family& family) {
  switch (architecture.sliding_window) {
    case SlidingWindow::kNone:
      return "";
    case SlidingWindow::kAllLayers:
    case SlidingWindow::kAllOrTyped:
      return "window";
    case SlidingWindow::kAfterMaxWindowLayers:
    case SlidingWindow::kEvenBelowMaxWindowLayers:
    case SlidingWindow::kAllWhereUsed:
    case SlidingWindow::kTyped:
    case SlidingWindow::kTypedOrUnturned:
    case SlidingWindow::kFromMaxWindowLayers:
      return "optional window";
    case SlidingWindow::kAttentionTypes:
    case SlidingWindow::kPatternAfterDense:
    case SlidingWindow::kHybridPattern:
      return "window by pattern";
    case SlidingWindow::kPattern:
    case SlidingWindow::kPatternFromFirst:
      break;
  }
  const Json* pattern = family.default_of("sliding_window_pattern");
  if (!pattern || !pattern->is_number_integer()) return "window by pattern";
  const auto every = pattern->get<int64_t>();
  return "window in " + std::to_string(every - 1) + " of " + counted(every, "layer");
}

void add_numbers(Words& words, const Architecture& architecture, const Family& family) {
  add(words, family.reads_number(&ModelConfig::attention_softcap), "score soft-cap");
  add(words, family.reads_number(&ModelConfig::logits_softcap), "logits soft-cap");
  add(words, family.reads_number(&ModelConfig::softmax_scale), "score scale");
  add(words, architecture.scales_embedding, "scaled embedding");
  add(words, architecture.norms_embedding || family.has_model_row(Role::kEmbeddingNorm),
      "norm of the embedding");
  add(words, family.has_model_row(Role::kEmbeddingIn), "optional projection of the embedding");
  const bool has_residual = family.reads_number(&ModelConfig::residual_multiplier) ||
                            family.reads_number(&ModelConfig::key_multiplier);
  add(words, has_residual, "multipliers");
  add(words, !has_residual && family.reads_number(&ModelConfig::logits_multiplier),
      "logits multiplier");
}

void add_feed_forward(Words& words, const Architecture& architecture, const Family& family) {
  add(words, family.presence(&ModelConfig::parallel_residual), "parallel MLP");
  add(words, family.presence(Role::kGateUp) != Presence::kNever, "fused gate/up");
  const bool has_up = family.presence(Role::kUp) != Presence::kNever;
  add(words, has_up && family.presence(Role::kGate) == Presence::kNever, "MLP without gate");
  add(words, family.reads_number(&ModelConfig::activation_limit), "clamped gate");
  add(words, family.always(Role::kActivationAlphaP), "xIELU");
  add(words, family.reads_number(&ModelConfig::activation_beta), "optional SiTU");
  add(words, family.always(Role::kInnerNorm), "norm within the MLP");
  if (!architecture.has_experts()) return;
  words.emplace_back(architecture.expert_layers == ExpertLayers::kWhereEnabled ? "optional MoE"
                                                                               : "MoE");
  add(words, family.has_row(Role::kExpertsIn), "optional latent of the experts");
  add(words, architecture.has_experts_by_layer, "optional number of experts by layer");
  add(words, architecture.has_mlp_beside_experts, "MLP beside the experts");
  add(words, architecture.weighs_expert_inputs, "weighed inputs of experts");
  add(words, architecture.router_score == RouterScore::kSigmoid, "sigmoid routing");
  add(words, architecture.router_score == RouterScore::kSparseMixer, "sparse-mixer routing");
  add(words, architecture.group_score != GroupScore::kNone, "expert groups");
  add(words,
      std::max(family.presence(Role::kSharedUp), family.presence(Role::kSharedGateUp)) !=
          Presence::kNever,
      architecture.scores_shared_experts ? "shared experts that the router scores"
                                         : "shared experts");
  add(words, architecture.has_prediction_layers, "prediction layers left out");
}

}  // namespace

std::vector<std::string> variation_words(const Architecture& architecture) {
  const Family family(architecture);
  Words words;
  add_norms(words, architecture, family);
  add_attention(words, architecture, family);
  add_recurrence(words, architecture, family);
  add_positions(words, architecture, family);
  const std::string window = window_word(architecture, family);
  add(words, !window.empty(), window);
  add_numbers(words, architecture, family);
  add_feed_forward(words, architecture, family);
  add_layer_ends(words, architecture, family);
  return words;
}

}  // namespace kvcal
