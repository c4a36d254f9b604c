#include "model/architecture.h"

#include <algorithm>
#include <cmath>

#include "core/registry.h"
#include "model/families/families.h"

namespace kvcal {

// Declaration and row side by side: families/families.h declares, this lists.
const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> kTable{
      llama_architecture(),
      mistral_architecture(),
  };
  return kTable;
}

const Architecture& architecture_of(const Json& config) {
  const std::string model_type = required_string(config, "model_type");
  std::vector<std::string> known;
  for (const Architecture& architecture : architectures())
    for (const std::string_view type : architecture.model_types) {
      if (type == model_type) return architecture;
      known.emplace_back(type);
    }
  std::string all;
  for (const std::string& type : known) all += (all.empty() ? "" : ", ") + type;
  fail("model_type '", model_type, "' is not supported", did_you_mean(model_type, known),
       "; supported are ", all);
}

int64_t ModelConfig::size_of(Dim dim) const {
  switch (dim) {
    case Dim::kHidden:
      return hidden_size;
    case Dim::kQueryWidth:
      return query_width();
    case Dim::kKvWidth:
      return kv_width();
    case Dim::kIntermediate:
      return intermediate_size;
    case Dim::kVocab:
      return vocab_size;
  }
  KVCAL_CHECK(false);
  return 0;
}

bool ModelConfig::has(Presence presence) const {
  switch (presence) {
    case Presence::kAlways:
      return true;
    case Presence::kAttentionBias:
      return attention_bias;
    case Presence::kMlpBias:
      return mlp_bias;
    case Presence::kUntied:
      return !tie_word_embeddings;
  }
  KVCAL_CHECK(false);
  return false;
}

std::string ModelConfig::attention_module(int64_t layer) const {
  return std::string(architecture->layer_prefix) + std::to_string(layer) + "." +
         std::string(architecture->attention_module);
}

namespace {

/// Sizes above these are not models but mistakes or attacks; products of them stay far from
/// overflow.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

int64_t size_in(const Json& config, std::string_view key, int64_t max) {
  const int64_t value = required_int(config, key);
  if (value < 1 || value > max) fail("key '", key, "' is ", value, ", expected 1 to ", max);
  return value;
}

double positive_number(const Json& object, std::string_view key, double fallback) {
  const double value = optional_number(object, key).value_or(fallback);
  if (!(value > 0.0)) fail("key '", key, "' is ", value, ", expected a positive number");
  return value;
}

double required_positive(const Json& object, std::string_view key) {
  if (!optional_number(object, key)) fail_missing(key, "a positive number");
  return positive_number(object, key, 0.0);
}

Activation parse_activation(const Json& config) {
  static const Registry<Activation> kActivations{"hidden_act",
                                                 {
                                                     {"silu", Activation::kSilu},
                                                     {"swish", Activation::kSilu},
                                                     {"gelu", Activation::kGelu},
                                                     {"gelu_new", Activation::kGeluTanh},
                                                     {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                 }};
  return kActivations.at(optional_string(config, "hidden_act").value_or("silu"));
}

RopeConfig::Type parse_rope_type(const Json& scaling) {
  static const Registry<RopeConfig::Type> kTypes{"rope type",
                                                 {
                                                     {"default", RopeConfig::Type::kDefault},
                                                     {"linear", RopeConfig::Type::kLinear},
                                                     {"dynamic", RopeConfig::Type::kDynamic},
                                                     {"yarn", RopeConfig::Type::kYarn},
                                                     {"llama3", RopeConfig::Type::kLlama3},
                                                 }};
  // "type" is the older spelling of "rope_type".
  const auto type = optional_string(scaling, "rope_type");
  const auto old_type = optional_string(scaling, "type");
  if (!type && !old_type) fail_missing("rope_type", "the name of a rope scaling");
  return kTypes.at(type ? *type : *old_type);
}

void parse_rope_scaling(const Json& scaling, const ModelConfig& config, RopeConfig& rope) {
  rope.type = parse_rope_type(scaling);
  rope.original_max_position_embeddings = optional_int(scaling, "original_max_position_embeddings")
                                              .value_or(config.max_position_embeddings);
  if (rope.original_max_position_embeddings < 1)
    fail("key 'original_max_position_embeddings' is ", rope.original_max_position_embeddings,
         ", expected 1 or more");
  if (rope.type == RopeConfig::Type::kDefault) return;
  rope.factor = required_positive(scaling, "factor");
  if (rope.type == RopeConfig::Type::kLlama3) {
    rope.low_freq_factor = required_positive(scaling, "low_freq_factor");
    rope.high_freq_factor = required_positive(scaling, "high_freq_factor");
    if (!(rope.low_freq_factor < rope.high_freq_factor))
      fail("key 'low_freq_factor' is ", rope.low_freq_factor,
           ", expected less than high_freq_factor ", rope.high_freq_factor);
  }
  if (rope.type == RopeConfig::Type::kYarn) {
    rope.beta_fast = positive_number(scaling, "beta_fast", 32.0);
    rope.beta_slow = positive_number(scaling, "beta_slow", 1.0);
    rope.mscale = optional_number(scaling, "mscale").value_or(0.0);
    rope.mscale_all_dim = optional_number(scaling, "mscale_all_dim").value_or(0.0);
    rope.attention_factor = optional_number(scaling, "attention_factor").value_or(0.0);
    rope.truncate = optional_bool(scaling, "truncate").value_or(true);
  }
}

RopeConfig parse_rope(const Json& json, const ModelConfig& config) {
  RopeConfig rope;
  const Json* parameters = find_field(json, "rope_parameters");
  const Json* scaling = find_field(json, "rope_scaling");
  rope.theta = positive_number(json, "rope_theta", 10000.0);
  if (parameters) {
    rope.theta = in_context("rope_parameters",
                            [&] { return positive_number(*parameters, "rope_theta", rope.theta); });
    in_context("rope_parameters", [&] { parse_rope_scaling(*parameters, config, rope); });
  } else if (scaling) {
    in_context("rope_scaling", [&] { parse_rope_scaling(*scaling, config, rope); });
  }
  return rope;
}

void parse_heads(const Json& json, ModelConfig& config) {
  config.num_attention_heads = size_in(json, "num_attention_heads", kMaxWidth);
  config.num_key_value_heads =
      optional_int(json, "num_key_value_heads").value_or(config.num_attention_heads);
  if (config.num_key_value_heads < 1 ||
      config.num_attention_heads % config.num_key_value_heads != 0)
    fail("key 'num_key_value_heads' is ", config.num_key_value_heads,
         ", expected a divisor of num_attention_heads ", config.num_attention_heads);
  if (optional_int(json, "head_dim")) {
    config.head_dim = size_in(json, "head_dim", 4096);
  } else {
    if (config.hidden_size % config.num_attention_heads != 0)
      fail("hidden_size ", config.hidden_size, " is not a multiple of num_attention_heads ",
           config.num_attention_heads, " and there is no head_dim");
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.head_dim % 2 != 0) fail("head_dim is ", config.head_dim, ", expected an even number");
  if (config.query_width() > kMaxWidth)
    fail("num_attention_heads times head_dim is ", config.query_width(), ", the limit is ",
         kMaxWidth);
}

void parse_sliding_window(const Json& json, ModelConfig& config) {
  config.sliding_window.assign(static_cast<size_t>(config.num_hidden_layers), 0);
  if (config.architecture->sliding_window == SlidingWindow::kNone) return;
  const auto window = optional_int(json, "sliding_window");
  if (!window) return;
  if (*window < 1) fail("key 'sliding_window' is ", *window, ", expected 1 or more, or null");
  std::fill(config.sliding_window.begin(), config.sliding_window.end(), *window);
}

}  // namespace

ModelConfig parse_model_config(const Json& json) {
  ModelConfig config;
  config.architecture = &architecture_of(json);
  config.model_type = required_string(json, "model_type");
  config.hidden_size = size_in(json, "hidden_size", kMaxWidth);
  config.intermediate_size = size_in(json, "intermediate_size", kMaxWidth);
  config.vocab_size = size_in(json, "vocab_size", kMaxVocab);
  config.num_hidden_layers = size_in(json, "num_hidden_layers", kMaxLayers);
  config.max_position_embeddings = size_in(json, "max_position_embeddings", kMaxPositions);
  parse_heads(json, config);
  config.rms_norm_eps = static_cast<float>(positive_number(json, "rms_norm_eps", 1e-6));
  config.activation = parse_activation(json);
  config.tie_word_embeddings = optional_bool(json, "tie_word_embeddings").value_or(false);
  if (config.architecture->has_bias_switches) {
    config.attention_bias = optional_bool(json, "attention_bias").value_or(false);
    config.mlp_bias = optional_bool(json, "mlp_bias").value_or(false);
  }
  parse_sliding_window(json, config);
  config.rope = parse_rope(json, config);
  const auto dtype = optional_string(json, "dtype");
  config.dtype = dtype ? *dtype : optional_string(json, "torch_dtype").value_or("");
  return config;
}

}  // namespace kvcal
