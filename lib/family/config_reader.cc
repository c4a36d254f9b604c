#include "family/config_reader.h"

#include <algorithm>
#include <array>
#include <string>

namespace kvcal {
namespace {

/// The value of "outer.key", the name of a key in an object; nullptr: there is none.
const Json* find_nested(const Json& file, std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto outer = file.find(name.substr(0, dot));
  if (outer == file.end() || !outer->is_object()) return nullptr;
  const auto found = outer->find(name.substr(dot + 1));
  return found == outer->end() ? nullptr : &*found;
}

/// rope_scaling is the older name of rope_parameters: what the file says under the one takes the
/// place of a default of the other. An empty rope_scaling says nothing.
bool has_other_rope(const Json& file, std::string_view key) {
  if (key == "rope_scaling") return find_field(file, "rope_parameters") != nullptr;
  const Json* scaling = key == "rope_parameters" ? find_field(file, "rope_scaling") : nullptr;
  return scaling && !scaling->empty();
}

}  // namespace

ConfigReader::ConfigReader(const Json& file, const Architecture& architecture,
                           std::string_view more_defaults)
    : json_(file), architecture_(architecture) {
  for (const KeyAlias& alias : architecture.aliases)
    if (const Json* nested = find_nested(file, alias.alias)) json_[alias.alias] = *nested;
  for (const FixedKey& fixed : architecture.fixed)
    if (const Json* nested = find_nested(file, fixed.key)) json_[fixed.key] = *nested;
  // As in transformers, an explicit null is a value; only an absent key gets the default. The ropes
  // of a class take the place of null.
  for (const std::string_view rope : {"rope_parameters", "rope_scaling"})
    if (const auto found = json_.find(rope); found != json_.end() && found->is_null())
      json_.erase(found);
  for (const std::string_view texts : {std::string_view(architecture.defaults), more_defaults}) {
    const Json defaults = parse_json(texts);
    for (const auto& [key, value] : defaults.items()) {
      if (has_other_rope(file, key) || is_said(key)) continue;
      json_[key] = value;
      defaulted_.insert(key);
    }
  }
}

bool ConfigReader::is_said(std::string_view key) const {
  const auto has = [&](std::string_view name) { return json_.contains(name); };
  const auto& aliases = architecture_.aliases;
  knows({key});
  return has(key) || std::ranges::any_of(aliases, [&](const KeyAlias& alias) {
           return (alias.key == key && has(alias.alias)) || (alias.alias == key && has(alias.key));
         });
}

std::string_view ConfigReader::name_of(std::string_view key) const {
  std::string_view present = key;
  knows({key});
  for (const KeyAlias& alias : architecture_.aliases) {
    if (alias.key != key) continue;
    if (find_field(json_, alias.alias)) return alias.alias;
    // A null alias counts only where the key itself is absent.
    if (json_.contains(std::string(alias.alias)) && !json_.contains(std::string(key)))
      present = alias.alias;
  }
  return present;
}

const Json* ConfigReader::find(std::string_view key) const {
  return find_field(json_, name_of(key));
}
bool ConfigReader::has_default(std::string_view key) const {
  const Json defaults = parse_json(architecture_.defaults);
  return defaults.contains(key) ||
         std::ranges::any_of(architecture_.aliases, [&](const KeyAlias& alias) {
           return alias.key == key && defaults.contains(alias.alias);
         });
}
std::optional<int64_t> ConfigReader::integer(std::string_view key) const {
  return optional_int(json_, name_of(key));
}
std::optional<double> ConfigReader::number(std::string_view key) const {
  return number_of(json_, key, name_of(key));
}
std::optional<bool> ConfigReader::boolean(std::string_view key) const {
  return optional_bool(json_, name_of(key));
}
std::optional<std::string> ConfigReader::string(std::string_view key) const {
  return optional_string(json_, name_of(key));
}

int64_t ConfigReader::size(std::string_view key, int64_t most, int64_t least) const {
  const auto found = integer(key);
  const int64_t value = found ? *found : required_int(json_, name_of(key));
  if (value < least || value > most)
    fail("key '", name_of(key), "' is ", value, ", expected ", least, " to ", most);
  return value;
}

double ConfigReader::required_number(std::string_view key) const {
  const auto value = number(key);
  if (!value) fail_missing(name_of(key), "a number");
  return *value;
}

std::optional<double> ConfigReader::number(const NumberKey& row) const {
  const std::string_view name = name_of(row.key);
  const std::optional<double> value = optional_number(json_, name);
  if (value) check_number(name, *value, row.range);
  return value;
}

void ConfigReader::knows(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    asked_.emplace(key);
    for (const KeyAlias& alias : architecture_.aliases)
      if (alias.key == key) asked_.emplace(alias.alias);
  }
}

namespace {

// clang-format off
/// Keys of rope_scaling and rope_parameters, of any type of rope.
constexpr auto kRopeKeys = std::to_array<std::string_view>({
    "attention_factor", "beta_fast", "beta_slow", "factor", "full_attention", "high_freq_factor",
    "long_factor", "long_mscale", "low_freq_factor", "max_position_embeddings",
    "mrope_interleaved", "mrope_section", "mscale", "mscale_all_dim",
    "original_max_position_embeddings", "partial_rotary_factor", "rope_theta", "rope_type",
    "short_factor", "short_mscale", "sliding_attention", "truncate", "type", "xdrope_section"
});
// clang-format on

void add_unread_rope_keys(const std::string& name, const Json& rope,
                          const Architecture& architecture, std::vector<std::string>& unread) {
  for (const auto& [key, value] : rope.items()) {
    if (value.is_object()) add_unread_rope_keys(name + "." + key, value, architecture, unread);
    const bool is_read = std::ranges::find(kRopeKeys, key) != kRopeKeys.end() ||
                         (architecture.has_rope_alpha && key == "alpha") ||
                         (architecture.has_query_beta && key == "llama_4_scaling_beta");
    if (!value.is_null() && !is_read) unread.push_back(name + "." + key);
  }
}

}  // namespace

bool ConfigReader::is_unread(const std::string& name, std::string_view key,
                             const Json& value) const {
  const auto& known = architecture_.known_keys;
  return !asked_.contains(name) && std::ranges::find(known, name) == known.end() &&
         !is_neutral_key(key, value);
}

std::vector<std::string> ConfigReader::unread_keys(const Json& file) const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : file.items()) {
    const bool is_rope = key == "rope_scaling" || key == "rope_parameters";
    if (is_rope && value.is_object() && asked_.contains(key))
      add_unread_rope_keys(key, value, architecture_, unread);
    const std::string inside = key + ".";
    const auto names_inside = [&](const KeyAlias& alias) {
      return alias.alias.starts_with(inside);
    };
    if (value.is_object() && std::ranges::any_of(architecture_.aliases, names_inside)) {
      for (const auto& [name, nested] : value.items())
        if (is_unread(inside + name, name, nested)) unread.push_back(inside + name);
    } else if (is_unread(key, key, value)) {
      unread.push_back(key);
    }
  }
  return unread;
}

void check_one_a_layer(std::string_view key, const Json& list, int64_t num_layers) {
  if (!list.is_array()) fail_kind(key, "a list with one entry a layer", list);
  if (std::ssize(list) != num_layers)
    fail("key '", key, "' has ", counted(list.size(), "value"), ", expected ", num_layers,
         ", one a layer");
}

bool has_row(const Architecture& architecture, Role role) {
  return std::ranges::any_of(architecture.layer_tensors,
                             [&](const TensorRow& row) { return row.role == role; });
}

namespace {

// clang-format off
/// Keys whatever their value. Layers for multi-token prediction follow the model's own.
constexpr auto kNeutral = std::to_array<std::string_view>({
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path",
    "activation_dropout", "architectures", "attention_dropout", "attention_probs_dropout_prob",
    "attention_softmax_in_fp32", "attn_dropout", "attn_dropout_prob", "attn_implementation",
    "attn_pdrop", "auto_map", "aux_loss_alpha", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "cache_implementation", "chunk_size_feed_forward",
    "classifier_dropout", "cls_token_id", "compression_config", "decoder_start_token_id",
    "diversity_penalty",
    "do_sample", "dropout", "dtype", "early_stopping", "embd_dropout", "embd_pdrop",
    "embed_dropout", "embedding_dropout", "enable_moe_fp32_combine",
    "encoder_no_repeat_ngram_size", "eos_token_id", "ep_size", "experts_implementation",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "gradient_checkpointing", "hidden_dropout", "hidden_dropout_prob",
    "id2label", "init_std", "initializer_factor", "initializer_range", "input_jitter_noise",
    "is_decoder", "kv_cache_torch_dtype", "label2id", "layerdrop", "length_penalty",
    "load_balance_coeff", "mamba_chunk_size", "mask_token_id", "max_length", "max_new_tokens",
    "min_length", "model_type", "mtp_num_hidden_layers", "mtp_transformer_layers", "n_ctx",
    "name_or_path", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels",
    "num_logits_to_keep", "num_mtp_modules", "num_nextn_predict_layers", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_router_logits", "output_scores",
    "pad_token_id", "prefix", "pretraining_tp", "problem_type", "quantization_config",
    "remove_invalid_values", "repetition_penalty", "rescale_prenorm_residual", "resid_dropout",
    "resid_pdrop", "residual_dropout", "residual_in_fp32", "return_dict",
    "return_dict_in_generate", "router_aux_loss_coef", "router_jitter_noise",
    "router_z_loss_coef", "scale_attention_softmax_in_fp32", "sep_token_id", "seq_aux",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "suppress_tokens", "task_specific_params", "temperature",
    "tf_legacy_loss", "tie_encoder_decoder", "time_step_floor", "time_step_max", "time_step_min",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version",
    "typical_p", "unk_token_id", "use_bfloat16", "use_cache", "use_mamba_kernels"
});
// clang-format on

/// Keys that change nothing only while they are off. Biases that are missing then, or there all the
/// same, are found by the check of tensors.
constexpr auto kNeutralWhileOff = std::to_array<std::string_view>(
    {"add_cross_attention", "attention_bias", "cross_attention_hidden_size", "is_encoder_decoder",
     "lm_head_bias", "mlp_bias", "pruned_heads"});

}  // namespace

bool is_neutral_key(std::string_view key, const Json& value) {
  const bool is_off = value.is_null() || value == false || (value.is_structured() && value.empty());
  return value.is_null() || std::ranges::find(kNeutral, key) != kNeutral.end() ||
         (is_off && std::ranges::find(kNeutralWhileOff, key) != kNeutralWhileOff.end());
}

namespace {

constexpr NumberRange kOrNone{.most = 1e6};
/// A base of 1 or less turns no dimension more slowly than another.
constexpr NumberRange kBase{.least = 1.0, .most = 1e15, .is_above = true};

const NumberRange& range_of(std::string_view key) {
  const auto& rows = number_rows();
  const auto row = std::ranges::find(rows, key, &NumberRow::key);
  KVCAL_CHECK(row != rows.end());
  return row->range;
}

}  // namespace

const std::vector<NumberRow>& number_rows() {
  static const std::vector<NumberRow> kRows{
      // Norms. Published values go from 1e-12 to 1e-5; an eps near the squares of the activations
      // would erase them.
      {"rms_norm_eps", {.least = 1e-30, .most = 1.0}},
      {"hc_eps", {.least = 0.0, .most = 1.0}},
      {"linear_lower_bound", {.least = -1e3, .most = -1e-3}},
      // RoPE.
      {"rope_theta", kBase},
      {"rope_local_base_freq", kBase},
      {"mrope_section", {.least = 1.0, .most = 65536.0}},
      {"alpha", {.most = 1e9}},
      {"partial_rotary_factor", {.most = 1.0, .is_above = true}},
      {"factor", kFactorRange},
      {"low_freq_factor", kFactorRange},
      {"high_freq_factor", kFactorRange},
      {"beta_fast", kFactorRange},
      {"beta_slow", kFactorRange},
      {"short_factor", kFactorRange},
      {"long_factor", kFactorRange},
      // 0 would erase K; transformers and vLLM take it as it is.
      {"attention_factor", kFactorRange},
      {"mscale", kOrNone},
      {"mscale_all_dim", kOrNone},
      {"short_mscale", kFactorRange},
      {"long_mscale", kFactorRange},
      {"llama_4_scaling_beta", kOrNone},
      {"attn_scale", kOrNone},
      {"log_scaling_alpha", kOrNone},
      // Widths, gates and mixers.
      {"block_ffn_dim_multiplier", {.most = 1024.0, .is_above = true}},
      {"activation_sparsity_pattern", {.most = 0.999999}},
      {"moe_router_logit_softcapping", {.least = -1e6, .most = 1e6}},
      {"moe_normalize_expert_weights", {.least = 0.125, .most = 16.0}},
      {"mlp_multipliers", kFactorRange},
      {"ssm_multipliers", kFactorRange},
      {"time_step_limit", kOrNone},
      {"time_step_min", kOrNone},
      {"kda_lower_bound", {.least = -1e6, .most = -1e-6}},
      {"swiglu_limits", kOrNone},
      {"swiglu_limits_shared", kOrNone},
  };
  return kRows;
}

void check_number(std::string_view name, double value, const NumberRange& range) {
  if (!range.contains(value))
    fail("key '", name, "' is ", value, ", expected a number ", range.is_above ? "above " : "from ",
         range.least, range.is_above ? ", up to " : " to ", range.most);
}

std::optional<double> number_of(const Json& object, std::string_view key, std::string_view name) {
  if (name.empty()) name = key;
  const std::optional<double> value = optional_number(object, name);
  if (value) check_number(name, *value, range_of(key));
  return value;
}

double required_number_of(const Json& object, std::string_view key) {
  const std::optional<double> value = number_of(object, key);
  if (!value) fail_missing(key, "a number");
  return *value;
}

double number_at(const Json& list, size_t index, std::string_view key, std::string_view name) {
  const std::string entry =
      std::string(name.empty() ? key : name) + "[" + std::to_string(index) + "]";
  const Json& value = list.at(index);
  if (!value.is_number()) fail("key '", entry, "' is ", value.dump(), ", expected a number");
  check_number(entry, value.get<double>(), range_of(key));
  return value.get<double>();
}

}  // namespace kvcal
