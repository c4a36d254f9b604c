#include "family/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/registry.h"
#include "core/text.h"
#include "family/alibi.h"
#include "family/architecture.h"
#include "family/image_rules.h"
#include "family/layer_plan.h"
#include "family/model_type_support.h"
#include "family/wrapper.h"

namespace kvcal {

int64_t ModelConfig::last_attention_layer() const {
  int64_t layer = num_hidden_layers - 1;
  while (layer > 0 && !has_attention(layer)) --layer;
  return layer;
}

void ModelConfig::check_length(int64_t tokens) const {
  if (most_tokens > 0 && tokens > most_tokens)
    fail("a sequence of ", counted(tokens, "token"), ": of more than ", most_tokens,
         ", attention of ", architecture->name,
         " reads blocks of keys that its indexer selects, which is not run; expected up to ",
         most_tokens, " tokens");
}

std::vector<int64_t> ModelConfig::shared_layers() const {
  std::set<int64_t> shared;
  for (const LayerConfig& layer : layers)
    if (layer.has_attention && !layer.has_own_cache) shared.insert(layer.cache_layer);
  return {shared.begin(), shared.end()};
}

int64_t ModelConfig::carried_words(int64_t longest_sample) const {
  const bool is_shared = std::ranges::any_of(
      layers, [](const LayerConfig& layer) { return layer.reads_selected && !layer.has_indexer; });
  return is_shared && selects_keys(longest_sample) ? KeySelection::words_of(longest_sample) : 0;
}

int64_t ModelConfig::carried_width(int64_t longest_sample) const {
  int64_t width = streams * hidden_size + carried_words(longest_sample);
  for (const int64_t layer : shared_layers()) width += cache(layer).width();
  return width;
}

int64_t ModelConfig::size_of(Dim dim, const LayerConfig* layer) const {
  const auto of_attention = [&](const auto& size) {
    KVCAL_CHECK(layer);
    return std::invoke(size, layer->attention);
  };
  const auto of_latent = [&](const auto& size) {
    KVCAL_CHECK(layer);
    return std::invoke(size, layer->latent);
  };
  switch (dim) {
#define KVCAL_SIZE(name, size) \
  case Dim::name:              \
    return size;
    KVCAL_DIMS(KVCAL_SIZE)
#undef KVCAL_SIZE
  }
  KVCAL_CHECK(false);
  return 0;
}

bool ModelConfig::holds(const std::vector<Condition>& conditions, const LayerConfig* layer) const {
  return std::ranges::all_of(conditions, [&](const Condition& condition) {
    if (condition.model) return this->*condition.model == condition.wanted;
    KVCAL_CHECK(condition.layer && layer);
    return layer->*condition.layer == condition.wanted;
  });
}

std::string ModelConfig::layer_prefix(int64_t layer) const {
  if (is_draft(layer) && architecture->draft == DraftLayer::kMtp) return "mtp.layers.0.";
  return backbone_prefix + std::string(architecture->layers_name) + std::to_string(layer) + ".";
}

std::string ModelConfig::attention_module(int64_t layer) const {
  const bool is_saved = has_saved_names && !architecture->saved_attention_module.empty();
  return layer_prefix(layer) + std::string(is_saved ? architecture->saved_attention_module
                                                    : architecture->attention_module);
}

namespace {

Activation parse_activation(const ConfigReader& reader) {
  const Registry<Activation> activations{std::string(reader.name_of("hidden_act")),
                                         {
                                             {"silu", Activation::kSilu},
                                             {"swish", Activation::kSilu},
                                             {"gelu", Activation::kGelu},
                                             {"gelu_new", Activation::kGeluTanh},
                                             {"gelu_fast", Activation::kGeluTanh},
                                             {"gelu_accurate", Activation::kGeluTanh},
                                             {"gelu_python", Activation::kGelu},
                                             {"gelu_python_tanh", Activation::kGeluTanh},
                                             {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                             {"quick_gelu", Activation::kQuickGelu},
                                             {"relu", Activation::kRelu},
                                             {"relu2", Activation::kSquaredRelu},
                                             {"xielu", Activation::kXielu},
                                             {"situ", Activation::kSitu},
                                         }};
  return activations.at(reader.string("hidden_act").value_or("silu"));
}

int64_t num_key_value_heads(const ConfigReader& reader, const ModelConfig& config) {
  if (config.multi_query && !config.new_decoder_architecture) return 1;
  const int64_t heads = reader.integer("num_key_value_heads").value_or(config.num_attention_heads);
  if (heads < 1 || config.num_attention_heads % heads != 0)
    fail("key '", reader.name_of("num_key_value_heads"), "' is ", heads,
         ", expected a divisor of num_attention_heads ", config.num_attention_heads);
  return heads;
}

void parse_heads(const ConfigReader& reader, ModelConfig& config) {
  config.num_attention_heads = reader.size("num_attention_heads", kMaxWidth);
  config.num_key_value_heads = num_key_value_heads(reader, config);
  if (config.architecture->has_latent_attention) {
    config.head_dim = config.latent.nope_dim + config.latent.rope_dim;
    config.num_key_value_heads = config.num_attention_heads;
  } else if (reader.integer("head_dim")) {
    config.head_dim = reader.size("head_dim", 4096);
  } else {
    if (config.hidden_size % config.num_attention_heads != 0)
      fail("hidden_size ", config.hidden_size, " is not a multiple of num_attention_heads ",
           config.num_attention_heads, " and there is no head_dim");
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.head_dim % 2 != 0) fail("head_dim is ", config.head_dim, ", expected an even number");
  const int64_t width = config.num_attention_heads * config.head_dim;
  if (width > kMaxWidth)
    fail("num_attention_heads times head_dim is ", width, ", the limit is ", kMaxWidth);
}

int64_t latent_value_dim(const ConfigReader& reader, const ModelConfig& config) {
  if (reader.integer("v_head_dim")) return reader.size("v_head_dim", 4096);
  const int64_t heads = reader.size("num_attention_heads", kMaxWidth);
  if (config.hidden_size % heads != 0 || config.hidden_size / heads > 4096)
    fail("hidden_size ", config.hidden_size, " and num_attention_heads ", heads,
         " give no size of a head, and there is no v_head_dim");
  return config.hidden_size / heads;
}

void parse_latent(const ConfigReader& reader, ModelConfig& config) {
  if (!config.architecture->has_latent_attention) return;
  if (reader.find("q_lora_rank")) config.latent.query_rank = reader.size("q_lora_rank", kMaxWidth);
  config.has_query_rank = config.latent.query_rank > 0;
  config.latent.latent_rank = reader.size("kv_lora_rank", kMaxWidth);
  config.latent.nope_dim = reader.size("qk_nope_head_dim", 4096);
  const bool may_turn = config.architecture->positions != Positions::kNone;
  config.latent.rope_dim = reader.size("qk_rope_head_dim", 4096, may_turn ? 2 : 0);
  config.latent.value_dim = latent_value_dim(reader, config);
  if (config.latent.rope_dim % 2 != 0)
    fail("key 'qk_rope_head_dim' is ", config.latent.rope_dim, ", expected an even number");
}

void parse_groups(const ConfigReader& reader, MoeConfig& moe) {
  if (moe.group_score == GroupScore::kNone || moe.num_experts == 0) return;
  moe.num_groups = reader.size("n_group", moe.num_experts);
  moe.groups_per_token = reader.size("topk_group", moe.num_groups);
  const int64_t size = moe.num_experts / moe.num_groups;
  const int64_t least = moe.group_score == GroupScore::kSumOfTwoLargest ? 2 : 1;
  if (moe.num_experts % moe.num_groups != 0 || size < least)
    fail("key 'n_group' is ", moe.num_groups, ", expected a divisor of ",
         counted(moe.num_experts, "expert"), " with at least ", least, " in each group");
  if (moe.groups_per_token * size < moe.experts_per_token)
    fail("key 'topk_group' is ", moe.groups_per_token, ": ", counted(moe.groups_per_token, "group"),
         " of ", counted(size, "expert"), " cannot give ", moe.experts_per_token, " a token");
}

/// Width of the expert for all tokens, where the family has one.
int64_t shared_intermediate_size(const ConfigReader& reader, const ModelConfig& config) {
  if (!has_row(*config.architecture, Role::kSharedDown)) return 0;
  if (config.architecture->scores_shared_experts) return config.moe.intermediate_size;
  if (reader.integer("shared_expert_intermediate_size").value_or(0) > 0)
    return reader.size("shared_expert_intermediate_size", kMaxWidth);
  if (reader.integer("n_shared_experts").value_or(0) > 0)
    return config.moe.intermediate_size * reader.size("n_shared_experts", 1024);
  return 0;
}

/// num_experts_per_tok, or the largest of its list; sets those of the layers.
int64_t experts_per_token(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "num_experts_per_tok";
  const int64_t most = config.moe.num_experts;
  const Json* list = config.architecture->has_experts_by_layer ? reader.find(kKey) : nullptr;
  if (!list || !list->is_array()) return reader.size(kKey, most);
  check_one_a_layer(reader.name_of(kKey), *list, config.num_hidden_layers);
  config.layers.resize(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& count = list->at(i);
    if (!count.is_number_integer() || count < 1 || count > most)
      fail("key '", reader.name_of(kKey), "' holds ", count.dump(), " for layer ", i,
           ", expected an integer from 1 to ", most);
    config.layers[i].experts_per_token = count.get<int64_t>();
  }
  return config.largest(&LayerConfig::experts_per_token);
}

void parse_experts(const ConfigReader& reader, ModelConfig& config) {
  if (!config.architecture->has_experts()) return;
  if (config.architecture->expert_layers == ExpertLayers::kWhereEnabled &&
      !reader.boolean("enable_moe_block").value_or(false))
    return reader.knows({"num_experts", "num_experts_per_tok", "moe_intermediate_size"});
  MoeConfig& moe = config.moe;
  moe.score = config.architecture->router_score;
  moe.group_score = config.architecture->group_score;
  // DeepSeek-V2 turns its groups off with this word.
  if (moe.group_score != GroupScore::kNone) reader.knows({"n_group", "topk_group"});
  if (reader.string("topk_method").value_or("") == "greedy") moe.group_score = GroupScore::kNone;
  // The minimum is 0 only where a layer can have an MLP instead.
  const int64_t least = has_row(*config.architecture, Role::kDown) ? 0 : 1;
  moe.num_experts = reader.size("num_experts", 65536, least);
  if (moe.num_experts * config.num_hidden_layers > kMaxExpertsOfAllLayers)
    fail("key '", reader.name_of("num_experts"), "' is ", moe.num_experts, " in each of ",
         counted(config.num_hidden_layers, "layer"), ", the limit for all together is ",
         kMaxExpertsOfAllLayers);
  // A single expert is an MLP (Jamba), for any number of experts per token.
  moe.experts_per_token = moe.num_experts > 1 ? experts_per_token(reader, config) : moe.num_experts;
  moe.intermediate_size = reader.integer("moe_intermediate_size")
                              ? reader.size("moe_intermediate_size", kMaxWidth)
                              : config.intermediate_size;
  moe.shared_intermediate_size = shared_intermediate_size(reader, config);
  if (config.architecture->scores_shared_experts)
    moe.scored_shared = reader.size("n_shared_experts", 1024);
  config.has_shared_expert = moe.shared_intermediate_size > 0;
  if (has_row(*config.architecture, Role::kExpertsIn) && reader.find("moe_latent_size"))
    moe.latent_size = reader.size("moe_latent_size", kMaxWidth);
  config.has_expert_latent = moe.latent_size > 0;
  if (moe.score == RouterScore::kSparseMixer && moe.experts_per_token != 2)
    fail("key 'num_experts_per_tok' is ", moe.experts_per_token, ", expected 2");
  parse_groups(reader, moe);
}

/// Of every family: with false, transformers turns the causal mask off. Source: transformers 5.24,
/// masking_utils.py, `create_causal_mask`.
constexpr FixedKey kCausal{"is_causal", "true"};

void check_fixed_keys(const ConfigReader& reader, const Architecture& architecture) {
  const auto check = [&](const FixedKey& fixed) {
    const Json* found = reader.find(fixed.key);
    if (found && *found != parse_json(fixed.value))
      fail("key '", fixed.key, "' is ", found->dump(), ", which is not supported for ",
           architecture.name, "; supported is ", fixed.value);
  };
  check(kCausal);
  std::ranges::for_each(architecture.fixed, check);
}

/// Embeddings that layers read beside the residual stream.
void parse_layer_inputs(const ConfigReader& reader, ModelConfig& config) {
  if (!has_row(*config.architecture, Role::kLayerInputGate)) return;
  reader.knows({"vocab_size_per_layer_input"});
  config.layer_input_size = reader.size("hidden_size_per_layer_input", 65536, 0);
  config.has_layer_inputs = config.layer_input_size > 0;
  if (config.has_layer_inputs)
    config.layer_input_vocab = reader.size("vocab_size_per_layer_input", kMaxVocab);
}

void parse_switches(const ConfigReader& reader, ModelConfig& config) {
  for (const SwitchKey& entry : config.architecture->switches)
    if (const auto value = reader.boolean(entry.key)) config.*entry.field = *value;
}

void parse_numbers(const ConfigReader& reader, ModelConfig& config) {
  for (const NumberKey& entry : config.architecture->numbers) {
    const auto value = reader.number(entry);
    if (!value) continue;
    const double read = entry.reading == NumberKey::Reading::kInverse ? 1.0 / *value
                        : entry.reading == NumberKey::Reading::kInverseSquareRoot
                            ? 1.0 / std::sqrt(*value)
                            : *value;
    config.*entry.field = static_cast<float>(read);
  }
}

/// DeepSeek scales the scores along with YaRN. Source: transformers `yarn_apply_mscale`.
float default_softmax_scale(const ModelConfig& config) {
  double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (config.architecture->has_latent_attention && !config.ropes.empty() &&
      config.ropes[0].mscale_all_dim != 0.0) {
    const double mscale = yarn_mscale(config.ropes[0].factor, config.ropes[0].mscale_all_dim);
    scale *= mscale * mscale;
  }
  return static_cast<float>(scale);
}

void parse_quantization(const Json& json, ModelConfig& config) {
  const Json* quantization = find_field(json, "quantization_config");
  if (!quantization) return;
  const auto method = optional_string(*quantization, "quant_method");
  // Other methods may have 16-bit weights with KV scales; these never do.
  constexpr std::array<std::string_view, 3> kUnread{"bitnet", "hqq", "torchao"};
  if (method && std::ranges::find(kUnread, *method) != kUnread.end())
    fail("key 'quantization_config.quant_method' is '", *method, "', whose weights are not read",
         about_unread(*method));
  if (!method || *method != "fp8") return;
  const Json* block = find_field(*quantization, "weight_block_size");
  if (!block) return;  // a scale a tensor
  const auto is_side = [](const Json& side) {
    return side.is_number_integer() && side >= 1 && side <= kMaxWidth;
  };
  if (!block->is_array() || block->size() != 2 || !is_side(block->at(0)) || !is_side(block->at(1)))
    fail("key 'quantization_config.weight_block_size' is ", block->dump(), ", expected two sizes");
  config.weight_block_rows = block->at(0).get<int64_t>();
  config.weight_block_columns = block->at(1).get<int64_t>();
}

/// transformers 5 saves a list alone for models whose layers are single blocks.
int64_t num_layers(const ConfigReader& reader, const Architecture& architecture) {
  const bool is_said = reader.find("num_hidden_layers") != nullptr;
  const auto listed =
      architecture.has_single_blocks && !is_said ? listed_layers(reader) : std::nullopt;
  if (!listed) return reader.size("num_hidden_layers", kMaxLayers);
  if (*listed < 1 || *listed > kMaxLayers)
    fail("the list of layer types has ", counted(*listed, "value"), ", expected 1 to ", kMaxLayers);
  return *listed;
}

void parse_sizes(const ConfigReader& reader, ModelConfig& config) {
  config.hidden_size = config.embedding_size = reader.size("hidden_size", kMaxWidth);
  const int64_t multiple = config.architecture->intermediate_multiple;
  if (lists_mlp_widths(reader, *config.architecture)) {
    // parse_mlps_by_layer reads it.
  } else if (multiple > 0 && !reader.integer("intermediate_size")) {
    config.intermediate_size = multiple * config.hidden_size;
  } else {
    config.intermediate_size = reader.size("intermediate_size", kMaxWidth);
  }
  config.vocab_size = reader.size("vocab_size", kMaxVocab);
  config.output_vocab_size = config.vocab_size;
  config.num_hidden_layers = num_layers(reader, *config.architecture);
  config.max_position_embeddings = reader.size("max_position_embeddings", kMaxPositions);
  if (config.architecture->reads_blocks_of_keys)
    config.most_tokens =
        reader.size("index_topk_blocks", kMaxWidth) * reader.size("index_block_size", kMaxWidth);
}

/// As strict as the check of tensors: a key may stand for a variation that the family lacks.
void refuse_unread_keys(const ModelConfig& config) {
  if (config.unread_keys.empty()) return;
  const auto quoted = [](const std::string& key) { return "'" + key + "'"; };
  fail(config.unread_keys.size() == 1 ? "key " : "keys ", join(config.unread_keys, ", ", quoted),
       ": not read by the family ", config.architecture->name, " that ", config.chosen.text(),
       " chose for model_type '", config.model_type,
       "', and may change what the model computes; a --family-file may list keys that change "
       "nothing as known_keys");
}

ModelConfig parse_text_config(const TextModel& model) {
  const Architecture& architecture = *model.architecture;
  Json json = *model.config;
  if (architecture.prepare) architecture.prepare(json);
  const ConfigReader reader(json, architecture,
                            model.wrapper_type.empty() ? "{}" : architecture.text_defaults);
  ModelConfig config;
  config.architecture = &architecture;
  config.model_type = model.model_type;
  config.wrapper_type = model.wrapper_type;
  config.wrapper = model.wrapper;
  config.chosen = model.chosen;
  const NamePrefix prefix = name_prefixes(config).front();
  config.backbone_prefix = prefix.backbone;
  config.head_prefix = prefix.head;
  config.rope_is_interleaved = architecture.rope_is_interleaved;
  config.centers_norm = architecture.centers_norm;
  check_fixed_keys(reader, architecture);
  parse_switches(reader, config);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings").value_or(false);
  parse_sizes(reader, config);
  parse_latent(reader, config);
  parse_heads(reader, config);
  config.norm_eps = static_cast<float>(reader.number("rms_norm_eps").value_or(1e-6));
  config.activation = parse_activation(reader);
  if (config.activation == Activation::kXielu && !has_row(architecture, Role::kActivationAlphaP))
    fail("key '", reader.name_of("hidden_act"), "' is 'xielu', whose numbers the layers of ",
         architecture.name, " do not hold");
  const auto is_beta = [](const NumberKey& key) {
    return key.field == &ModelConfig::activation_beta;
  };
  if (config.activation == Activation::kSitu && std::ranges::none_of(architecture.numbers, is_beta))
    fail("key '", reader.name_of("hidden_act"), "' is 'situ', whose numbers the family ",
         architecture.name, " does not read");
  parse_experts(reader, config);
  parse_layer_inputs(reader, config);
  parse_layers(reader, config);
  if (architecture.positions == Positions::kAlibi)
    config.alibi_slopes = alibi_slopes(config.num_attention_heads);
  parse_indexers(reader, config);
  parse_streams(reader, config);
  parse_ngrams(reader, config);
  if (architecture.has_mlp_by_layer) parse_mlps_by_layer(reader, config);
  config.softmax_scale = default_softmax_scale(config);
  if (architecture.scales_embedding)
    config.embedding_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
  parse_numbers(reader, config);
  if (architecture.resolve) architecture.resolve(json, config);
  resolve_images(json, config);
  for (LayerConfig& layer : config.layers)
    if (layer.intermediate_size == 0) layer.intermediate_size = config.intermediate_size;
  config.unread_keys = reader.unread_keys(json);
  if (config.chosen) refuse_unread_keys(config);
  return config;
}

/// In transformers the outer value takes precedence, unless the wrapper has a rule of its own.
void parse_outer_tie(const Json& json, const Json& text, ModelConfig& config) {
  const auto outer = optional_bool(json, "tie_word_embeddings");
  const auto inner = optional_bool(text, "tie_word_embeddings");
  config.ties_by_file = !outer && !inner;
  if (!outer) return;
  const bool either = config.wrapper && config.wrapper->rules.ties_if_either;
  config.tie_word_embeddings = *outer || (either && config.tie_word_embeddings);
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const FamilyChoice& family) {
  const TextModel model = text_model_of(json, family);
  const bool is_nested = model.config != &json;
  ModelConfig config = is_nested
                           ? in_context("text_config", [&] { return parse_text_config(model); })
                           : parse_text_config(model);
  const auto dtype = [](const Json& object) {
    const auto value = optional_string(object, "dtype");
    return value ? *value : optional_string(object, "torch_dtype").value_or("");
  };
  config.dtype = dtype(json);
  if (config.dtype.empty()) config.dtype = dtype(*model.config);
  if (is_nested) parse_outer_tie(json, *model.config, config);
  if (config.wrapper && config.wrapper->rules.multiplies_no_logits) config.logits_multiplier = 1.0f;
  parse_quantization(json, config);
  return config;
}

}  // namespace kvcal
