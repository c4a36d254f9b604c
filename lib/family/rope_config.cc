#include <algorithm>
#include <cmath>
#include <utility>

#include "core/registry.h"
#include "family/config_reader.h"

namespace kvcal {
namespace {

double positive_or(const Json& object, std::string_view key, double fallback) {
  const double value = optional_number(object, key).value_or(fallback);
  if (!(value > 0.0)) fail("key '", key, "' is ", value, ", expected a positive number");
  return value;
}

double required_positive(const Json& object, std::string_view key) {
  if (!optional_number(object, key)) fail_missing(key, "a positive number");
  return positive_or(object, key, 0.0);
}

RopeConfig::Type parse_rope_type(const Json& scaling) {
  static const Registry<RopeConfig::Type> kTypes{
      "rope type",
      {
          {"default", RopeConfig::Type::kDefault},
          // With text alone.
          {"mrope", RopeConfig::Type::kDefault},
          {"linear", RopeConfig::Type::kLinear},
          {"dynamic", RopeConfig::Type::kDynamic},
          {"xdrope", RopeConfig::Type::kDynamic},
          {"yarn", RopeConfig::Type::kYarn},
          {"longrope", RopeConfig::Type::kLongRope},
          {"su", RopeConfig::Type::kLongRope},
          {"llama3", RopeConfig::Type::kLlama3},
          {"proportional", RopeConfig::Type::kProportional},
      }};
  // "type" is the older spelling of "rope_type".
  const auto type = optional_string(scaling, "rope_type");
  const auto old_type = optional_string(scaling, "type");
  if (!type && !old_type) {
    if (find_field(scaling, "factor")) fail_missing("rope_type", "the name of a rope scaling");
    return RopeConfig::Type::kDefault;
  }
  return kTypes.at(type ? *type : *old_type);
}

std::vector<double> parse_factors(const Json& scaling, std::string_view key, int64_t count) {
  const Json* list = find_field(scaling, key);
  if (!list) fail_missing(key, "a list of numbers");
  if (!list->is_array() || list->size() != static_cast<size_t>(count))
    fail("key '", key, "' is ",
         list->is_array() ? "a list of " + std::to_string(list->size())
                          : std::string(kind_of(*list)),
         ", expected a list of ", count, " numbers: half of the dimensions that turn");
  std::vector<double> factors;
  for (const Json& value : *list) {
    if (!value.is_number() || !(value.get<double>() > 0.0))
      fail("key '", key, "' holds ", value.dump(), ", expected positive numbers");
    factors.push_back(value.get<double>());
  }
  return factors;
}

void parse_llama3(const Json& scaling, RopeConfig& rope) {
  rope.low_freq_factor = required_positive(scaling, "low_freq_factor");
  rope.high_freq_factor = required_positive(scaling, "high_freq_factor");
  if (!(rope.low_freq_factor < rope.high_freq_factor))
    fail("key 'low_freq_factor' is ", rope.low_freq_factor,
         ", expected less than high_freq_factor ", rope.high_freq_factor);
}

void parse_yarn(const Json& scaling, RopeConfig& rope) {
  rope.beta_fast = positive_or(scaling, "beta_fast", 32.0);
  rope.beta_slow = positive_or(scaling, "beta_slow", 1.0);
  rope.mscale = optional_number(scaling, "mscale").value_or(0.0);
  rope.mscale_all_dim = optional_number(scaling, "mscale_all_dim").value_or(0.0);
  rope.attention_factor = optional_number(scaling, "attention_factor").value_or(0.0);
  rope.truncate = optional_bool(scaling, "truncate").value_or(true);
  rope.query_beta = optional_number(scaling, "llama_4_scaling_beta").value_or(0.0);
  if (rope.query_beta != 0.0 && rope.unturned_dim % 2 != 0)
    fail("key 'qk_nope_head_dim' is ", rope.unturned_dim,
         ", expected an even number where queries grow with the position");
}

void parse_longrope(const Json& scaling, RopeConfig& rope) {
  rope.short_factor = parse_factors(scaling, "short_factor", rope.rotary_dim / 2);
  rope.long_factor = parse_factors(scaling, "long_factor", rope.rotary_dim / 2);
  rope.factor = positive_or(scaling, "factor",
                            static_cast<double>(rope.max_position_embeddings) /
                                static_cast<double>(rope.original_max_position_embeddings));
  rope.attention_factor = optional_number(scaling, "attention_factor").value_or(0.0);
  rope.short_mscale = optional_number(scaling, "short_mscale").value_or(0.0);
  rope.long_mscale = optional_number(scaling, "long_mscale").value_or(0.0);
}

/// Whether Hunyuan's alpha raises theta, once for all lengths, whatever the type says. Source:
/// transformers hunyuan_v1_dense `compute_ntk_alpha_rope_parameters`.
bool is_raised_by_alpha(const Json& scaling, const ModelConfig& config) {
  return config.architecture->has_rope_alpha &&
         optional_number(scaling, "alpha").value_or(0.0) != 0.0 &&
         parse_rope_type(scaling) == RopeConfig::Type::kDynamic;
}

/// Whether the family's own formula reads the share of turning dimensions. Such a family names its
/// default; formulas of scaled types read it in every family. Source: transformers 5.23
/// `compute_default_rope_parameters`.
bool reads_share(const Json& scaling, const ConfigReader& reader, const ModelConfig& config) {
  if (parse_rope_type(scaling) != RopeConfig::Type::kDefault)
    return !is_raised_by_alpha(scaling, config);
  return reader.has_default("partial_rotary_factor");
}

/// Turning dimensions: a share of the head, or MLA's own.
int64_t rotary_dim_of(const Json& scaling, const ConfigReader& reader, const ModelConfig& config,
                      int64_t head_dim) {
  if (config.architecture->has_latent_attention) return config.latent.rope_dim;
  if (config.architecture->counts_rotary_dim && reader.integer("rotary_dim")) {
    const int64_t dim = reader.size("rotary_dim", config.head_dim, 2);
    if (dim % 2 != 0) fail("key 'rotary_dim' is ", dim, ", expected an even number");
    return dim;
  }
  const auto in_scaling = optional_number(scaling, "partial_rotary_factor");
  const double share =
      in_scaling ? *in_scaling : reader.number("partial_rotary_factor").value_or(1.0);
  const bool is_share = share > 0.0 && share <= 1.0;
  const auto dim = is_share ? static_cast<int64_t>(static_cast<double>(head_dim) * share) : 0;
  if (dim < 2 || dim % 2 != 0)
    fail("key '", reader.name_of("partial_rotary_factor"), "' is ", share, ", which turns ", dim,
         " of ", head_dim, " dimensions of a head; expected an even number of them");
  if (dim != head_dim && !reads_share(scaling, reader, config))
    fail("key '", reader.name_of("partial_rotary_factor"), "' is ", share, ", which ",
         config.architecture->name,
         " reads only with a scaled rope_type; expected 1 or no such key");
  return dim;
}

RopeConfig parse_rope(const Json& scaling, const ConfigReader& reader, const ModelConfig& config,
                      int64_t head_dim) {
  RopeConfig rope;
  rope.theta = positive_or(scaling, "rope_theta", reader.number("rope_theta").value_or(10000.0));
  if (!(rope.theta > 0.0)) fail("key 'rope_theta' is ", rope.theta, ", expected a positive number");
  rope.rotary_dim = rotary_dim_of(scaling, reader, config, head_dim);
  if (config.architecture->has_latent_attention) rope.unturned_dim = config.latent.nope_dim;
  rope.max_position_embeddings = config.max_position_embeddings;
  rope.turns_back = config.architecture->rope_turns_back;
  // Phi-3 keeps the trained length outside of rope_scaling, and there it wins.
  const auto outside = reader.integer("original_max_position_embeddings");
  const auto inside = optional_int(scaling, "original_max_position_embeddings");
  rope.original_max_position_embeddings =
      outside ? *outside : inside.value_or(config.max_position_embeddings);
  if (rope.original_max_position_embeddings < 1)
    fail("key 'original_max_position_embeddings' is ", rope.original_max_position_embeddings,
         ", expected 1 or more");
  if (scaling.empty()) return rope;
  if (is_raised_by_alpha(scaling, config)) {
    const auto dim = static_cast<double>(config.head_dim);
    rope.theta *= std::pow(required_positive(scaling, "alpha"), dim / (dim - 2.0));
    return rope;
  }
  rope.type = parse_rope_type(scaling);
  if (rope.type == RopeConfig::Type::kDefault) return rope;
  if (rope.type == RopeConfig::Type::kProportional) {
    if (config.architecture->has_latent_attention)
      fail("rope type 'proportional' is not supported for the latent attention of ",
           config.architecture->name);
    rope.turning_dim = std::exchange(rope.rotary_dim, head_dim);
    rope.factor = positive_or(scaling, "factor", 1.0);
    return rope;
  }
  if (rope.type == RopeConfig::Type::kLongRope) {
    parse_longrope(scaling, rope);
    return rope;
  }
  if (rope.type == RopeConfig::Type::kYarn && !find_field(scaling, "factor")) {
    rope.factor = static_cast<double>(rope.max_position_embeddings) /
                  static_cast<double>(rope.original_max_position_embeddings);
  } else {
    rope.factor = required_positive(scaling, "factor");
  }
  if (rope.type == RopeConfig::Type::kLlama3) parse_llama3(scaling, rope);
  if (rope.type == RopeConfig::Type::kYarn) parse_yarn(scaling, rope);
  return rope;
}

/// transformers 5 may give each layer type its own parameters.
bool is_by_layer_type(const Json& parameters) {
  return parameters.contains("full_attention") || parameters.contains("sliding_attention");
}

RopeConfig parse_local_rope(const ConfigReader& reader, const ModelConfig& config) {
  RopeConfig rope = parse_rope(Json::object(), reader, config, config.head_dim);
  if (config.architecture->local_rope == LocalRope::kOwnTheta)
    rope.theta = reader.positive("rope_local_base_freq");
  return rope;
}

/// Number of the rope that differs from the first in theta alone, which is made where needed.
int64_t rope_with_theta(double theta, ModelConfig& config) {
  const auto has_theta = [&](const RopeConfig& rope) { return rope.theta == theta; };
  const auto found = std::ranges::find_if(config.ropes, has_theta);
  const int64_t number = found - config.ropes.begin();
  if (found == config.ropes.end()) {
    config.ropes.push_back(config.ropes.front());
    config.ropes.back().theta = theta;
  }
  return number;
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void parse_ropes(const ConfigReader& reader, ModelConfig& config) {
  const Positions positions = config.architecture->positions;
  if (positions == Positions::kLearned || positions == Positions::kSinusoidal ||
      positions == Positions::kNone)
    return;
  const bool has_local = config.architecture->local_rope != LocalRope::kSame;
  const Json* parameters = reader.find("rope_parameters");
  const Json* scaling = parameters ? parameters : reader.find("rope_scaling");
  const std::string_view key = parameters ? "rope_parameters" : "rope_scaling";
  if (scaling && !scaling->is_object()) fail_kind(key, "an object", *scaling);
  if (scaling && is_by_layer_type(*scaling)) {
    for (const std::string_view type : {"full_attention", "sliding_attention"}) {
      const Json* entry = find_field(*scaling, type);
      const bool is_full = type == "full_attention";
      const auto uses = [&](const LayerConfig& layer) {
        return (layer.sliding_window == 0) == is_full;
      };
      const auto user = std::ranges::find_if(config.layers, uses);
      const bool may_lack = positions == Positions::kRopeByLayerType || !is_full;
      if (!entry && !may_lack && user != config.layers.end())
        fail("key '", key, ".full_attention' is missing, and there are layers without a window");
      if (!entry) continue;
      const int64_t dim = user == config.layers.end() ? config.head_dim : user->attention.head_dim;
      for (const LayerConfig& layer : config.layers)
        if (uses(layer) && layer.attention.head_dim != dim)
          fail("key '", key, ".", type, "' is of layers with heads of ", dim, " and of ",
               layer.attention.head_dim, ", expected heads of one size");
      config.ropes.push_back(in_context(std::string(key) + "." + std::string(type),
                                        [&] { return parse_rope(*entry, reader, config, dim); }));
    }
    return;
  }
  const Json global = scaling ? *scaling : Json::object();
  config.ropes.push_back(
      in_context(key, [&] { return parse_rope(global, reader, config, config.head_dim); }));
  if (has_local) config.ropes.push_back(parse_local_rope(reader, config));
}

void parse_ropes_by_layer(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "layer_rope_theta";
  const Json* list = reader.find(kKey);
  if (!list) return;
  check_one_a_layer(kKey, *list, std::ssize(config.layers));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const Json& found = list->at(i);
    if (!found.is_number() || !(found.get<double>() >= 0.0))
      fail("key 'layer_rope_theta' holds ", found.dump(), ", expected numbers of 0 or more");
    const auto theta = found.get<double>();
    config.layers[i].rope = theta == 0.0 ? kNoRope : rope_with_theta(theta, config);
  }
}

}  // namespace kvcal
