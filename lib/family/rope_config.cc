#include <algorithm>
#include <cmath>
#include <utility>

#include "core/registry.h"
#include "family/image_rules.h"
#include "family/layer_plan.h"

namespace kvcal {
namespace {

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
          {"deepseek_yarn", RopeConfig::Type::kYarn},
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

std::vector<double> parse_factors(const Json& scaling, std::string_view key, int64_t count,
                                  std::string_view what = "half of the dimensions that turn") {
  const Json* list = find_field(scaling, key);
  if (!list) fail_missing(key, "a list of numbers");
  if (!list->is_array() || list->size() != static_cast<size_t>(count))
    fail("key '", key, "' is ",
         list->is_array() ? "a list of " + std::to_string(list->size())
                          : std::string(kind_of(*list)),
         ", expected a list of ", counted(count, "number"), ": ", what);
  std::vector<double> factors;
  for (size_t i = 0; i < list->size(); ++i) factors.push_back(number_at(*list, i, key));
  return factors;
}

void parse_llama3(const Json& scaling, RopeConfig& rope) {
  rope.low_freq_factor = required_number_of(scaling, "low_freq_factor");
  rope.high_freq_factor = required_number_of(scaling, "high_freq_factor");
  if (!(rope.low_freq_factor < rope.high_freq_factor))
    fail("key 'low_freq_factor' is ", rope.low_freq_factor,
         ", expected less than high_freq_factor ", rope.high_freq_factor);
}

void parse_yarn(const Json& scaling, RopeConfig& rope) {
  rope.beta_fast = number_of(scaling, "beta_fast").value_or(32.0);
  rope.beta_slow = number_of(scaling, "beta_slow").value_or(1.0);
  rope.mscale = number_of(scaling, "mscale").value_or(0.0);
  rope.mscale_all_dim = number_of(scaling, "mscale_all_dim").value_or(0.0);
  rope.attention_factor = number_of(scaling, "attention_factor").value_or(0.0);
  // transformers takes a null for false.
  rope.truncate = optional_bool(scaling, "truncate").value_or(!scaling.contains("truncate"));
}

void parse_longrope(const Json& scaling, RopeConfig& rope) {
  rope.short_factor = parse_factors(scaling, "short_factor", rope.rotary_dim / 2);
  rope.long_factor = parse_factors(scaling, "long_factor", rope.rotary_dim / 2);
  rope.factor = number_of(scaling, "factor")
                    .value_or(static_cast<double>(rope.max_position_embeddings) /
                              static_cast<double>(rope.original_max_position_embeddings));
  rope.attention_factor = number_of(scaling, "attention_factor").value_or(0.0);
  rope.short_mscale = number_of(scaling, "short_mscale").value_or(0.0);
  rope.long_mscale = number_of(scaling, "long_mscale").value_or(0.0);
}

/// Growth of queries with the position, whatever the type of rope. Source: transformers 5.24
/// `Ministral3Attention`, `Mistral4Attention`.
void parse_query_growth(const Json& scaling, const ModelConfig& config, RopeConfig& rope) {
  if (!config.architecture->has_query_beta) return;
  rope.query_beta = number_of(scaling, "llama_4_scaling_beta").value_or(0.0);
  if (rope.query_beta != 0.0 && rope.unturned_dim % 2 != 0)
    fail("key 'qk_nope_head_dim' is ", rope.unturned_dim,
         ", expected an even number where queries grow with the position");
}

/// Sections of M-RoPE, where a wrapper's images have places in height and width. Source:
/// transformers 5.24 `Qwen2VLRotaryEmbedding`, `Qwen3VLTextRotaryEmbedding`.
void parse_sections(const Json& scaling, const ModelConfig& config, RopeConfig& rope) {
  constexpr std::string_view kKey = "mrope_section";
  const ImageRules* rules = image_rules_of(config.wrapper_type);
  if (!rules || rules->sections[0] == 0) return;
  rope.sections = rules->sections;
  rope.sections_are_interleaved = rules->sections_are_interleaved;
  if (find_field(scaling, kKey)) {
    const std::vector<double> sizes = parse_factors(scaling, kKey, 3, "time, height and width");
    for (size_t axis = 0; axis < 3; ++axis) rope.sections[axis] = static_cast<int64_t>(sizes[axis]);
  }
  const int64_t pairs = rope.sections[0] + rope.sections[1] + rope.sections[2];
  if (!rope.sections_are_interleaved && 2 * pairs != rope.rotary_dim)
    fail("key '", kKey, "' gives ", counted(pairs, "pair"), " of dimensions, expected ",
         rope.rotary_dim / 2, ": all that turn");
}

/// Whether Hunyuan's alpha raises theta, once for all lengths, whatever the type says. Source:
/// transformers hunyuan_v1_dense `compute_ntk_alpha_rope_parameters`.
bool is_raised_by_alpha(const Json& scaling, const ModelConfig& config) {
  return config.architecture->has_rope_alpha && number_of(scaling, "alpha").value_or(0.0) != 0.0 &&
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

/// The share of turning dimensions that the file or the family says.
std::optional<double> share_of(const Json& scaling, const ConfigReader& reader) {
  const auto inside = number_of(scaling, "partial_rotary_factor");
  return inside ? inside : reader.number("partial_rotary_factor");
}

/// Turning dimensions that a share of the head gives.
int64_t shared_dim(const Json& scaling, const ConfigReader& reader, const ModelConfig& config,
                   int64_t head_dim) {
  const double share = share_of(scaling, reader).value_or(1.0);
  const auto dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (dim < 2 || dim % 2 != 0)
    fail("key '", reader.name_of("partial_rotary_factor"), "' is ", share, ", which turns ", dim,
         " of ", counted(head_dim, "dimension"), " of a head; expected an even number of them");
  if (dim != head_dim && !reads_share(scaling, reader, config))
    fail("key '", reader.name_of("partial_rotary_factor"), "' is ", share, ", which ",
         config.architecture->name,
         " reads only with a scaled rope_type; expected 1 or no such key");
  return dim;
}

/// Sizes of the heads that turn: head_dim, and those of latent attention.
struct TurnedHeads {
  int64_t dim = 0;
  LatentConfig latent;
  bool operator==(const TurnedHeads&) const = default;
};
TurnedHeads heads_of(const ModelConfig& config) {
  return {config.head_dim, config.latent};
}
TurnedHeads heads_of(const LayerConfig& layer) {
  return {layer.attention.head_dim, layer.latent};
}

/// Turning dimensions: a share of the head, or a number of the family's own.
int64_t rotary_dim_of(const Json& scaling, const ConfigReader& reader, const ModelConfig& config,
                      const TurnedHeads& heads) {
  const int64_t head_dim = heads.dim;
  const bool is_latent = config.architecture->has_latent_attention;
  const bool is_counted = config.architecture->counts_rotary_dim && reader.integer("rotary_dim");
  if (!is_latent && !is_counted) return shared_dim(scaling, reader, config, head_dim);
  const std::string_view key = is_latent ? "qk_rope_head_dim" : "rotary_dim";
  const int64_t dim =
      is_latent ? heads.latent.rope_dim : reader.size("rotary_dim", config.head_dim, 2);
  if (dim % 2 != 0) fail("key '", key, "' is ", dim, ", expected an even number");
  // Where the share is said, too, programs take the one or the other. Of a latent's rotated key,
  // which turns whole, it may be that of the whole head (Mistral 4).
  const bool is_default =
      !find_field(scaling, "partial_rotary_factor") && reader.is_defaulted("partial_rotary_factor");
  const auto share = is_default ? std::nullopt : share_of(scaling, reader);
  const auto turns = [&](int64_t width) {
    return static_cast<int64_t>(static_cast<double>(width) * *share) == dim;
  };
  if (share && !turns(head_dim) && !(is_latent && turns(dim)))
    fail("key '", reader.name_of("partial_rotary_factor"), "' is ", *share, " of ",
         counted(head_dim, "dimension"), ", and '", key, "' ", dim, "; expected the same in both");
  return dim;
}

RopeConfig parse_rope(const Json& scaling, const ConfigReader& reader, const ModelConfig& config,
                      const TurnedHeads& heads) {
  RopeConfig rope;
  const auto theta = number_of(scaling, "rope_theta");
  rope.theta = theta ? *theta : reader.number("rope_theta").value_or(10000.0);
  rope.rotary_dim = rotary_dim_of(scaling, reader, config, heads);
  if (config.architecture->has_latent_attention) rope.unturned_dim = heads.latent.nope_dim;
  rope.max_position_embeddings = config.max_position_embeddings;
  rope.turns_back = config.architecture->rope_turns_back;
  // Phi-3 keeps the trained length outside of rope_scaling, and there it wins.
  const auto outside = reader.integer("original_max_position_embeddings");
  const auto inside = optional_int(scaling, "original_max_position_embeddings");
  rope.original_max_position_embeddings =
      outside ? *outside : inside.value_or(config.max_position_embeddings);
  if (rope.original_max_position_embeddings < 1 ||
      rope.original_max_position_embeddings > kMaxPositions)
    fail("key 'original_max_position_embeddings' is ", rope.original_max_position_embeddings,
         ", expected 1 to ", kMaxPositions);
  parse_sections(scaling, config, rope);
  if (scaling.empty()) return rope;
  parse_query_growth(scaling, config, rope);
  if (is_raised_by_alpha(scaling, config)) {
    const auto dim = static_cast<double>(config.head_dim);
    const double alpha = required_number_of(scaling, "alpha");
    check_number("alpha", alpha, {.least = 1e-6, .most = 1e9});
    rope.theta *= std::pow(alpha, dim / (dim - 2.0));
    return rope;
  }
  rope.type = parse_rope_type(scaling);
  if (rope.type == RopeConfig::Type::kDefault) return rope;
  // It scales latent attention's scores, whatever the type.
  if (config.architecture->has_latent_attention)
    rope.mscale_all_dim = number_of(scaling, "mscale_all_dim").value_or(0.0);
  if (rope.type == RopeConfig::Type::kProportional) {
    if (config.architecture->has_latent_attention)
      fail("rope type 'proportional' is not supported for the latent attention of ",
           config.architecture->name);
    rope.turning_dim = std::exchange(rope.rotary_dim, heads.dim);
    rope.factor = number_of(scaling, "factor").value_or(1.0);
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
    rope.factor = required_number_of(scaling, "factor");
  }
  if (rope.type == RopeConfig::Type::kLlama3) parse_llama3(scaling, rope);
  if (rope.type == RopeConfig::Type::kYarn) parse_yarn(scaling, rope);
  return rope;
}

/// transformers 5 may give each layer type its own parameters.
bool is_by_layer_type(const Json& parameters) {
  return parameters.contains("full_attention") || parameters.contains("sliding_attention");
}

/// Refuses what programs take differently where layers with a window turn without scaling: theta
/// beside the types of layers. Source: transformers 5.24 `Olmo3Config.convert_rope_params_to_dict`,
/// whose layers with a window have the class's theta whatever the file says; transformers 4.57
/// `Olmo3RotaryEmbedding` takes the file's.
void check_unscaled_theta(double theta, const ModelConfig& config) {
  const double expected = parse_json(config.architecture->defaults).value("rope_theta", 10000.0);
  if (theta != expected)
    fail("key 'rope_theta' is ", theta, ", which programs take for all layers or for those ",
         "without a window; expected ", expected,
         ", or rope_parameters with entries 'full_attention' and 'sliding_attention'");
}

RopeConfig parse_local_rope(const ConfigReader& reader, const ModelConfig& config) {
  RopeConfig rope = parse_rope(Json::object(), reader, config, heads_of(config));
  if (config.architecture->local_rope == LocalRope::kUnscaled)
    check_unscaled_theta(rope.theta, config);
  if (config.architecture->local_rope == LocalRope::kOwnTheta)
    rope.theta = reader.required_number("rope_local_base_freq");
  return rope;
}

/// The ropes of layers without a window, then of those with one.
std::vector<RopeConfig> ropes_by_type(std::string_view key, const Json& object,
                                      const ConfigReader& reader, const ModelConfig& config) {
  std::vector<RopeConfig> ropes;
  for (const std::string_view type : {"full_attention", "sliding_attention"}) {
    const Json* entry = find_field(object, type);
    const bool is_full = type == "full_attention";
    const auto uses = [&](const LayerConfig& layer) {
      return (layer.sliding_window == 0) == is_full;
    };
    const auto user = std::ranges::find_if(config.layers, uses);
    const bool may_lack = config.architecture->positions == Positions::kRopeByLayerType || !is_full;
    if (!entry && !may_lack && user != config.layers.end())
      fail("key '", key, ".full_attention' is missing, and there are layers without a window");
    const bool has_local_theta =
        !is_full && config.architecture->local_rope == LocalRope::kOwnTheta;
    if (!entry && has_local_theta) ropes.push_back(parse_local_rope(reader, config));
    if (!entry) continue;
    const TurnedHeads heads = user == config.layers.end() ? heads_of(config) : heads_of(*user);
    for (const LayerConfig& layer : config.layers)
      if (uses(layer) && heads_of(layer) != heads)
        fail("key '", key, ".", type, "' is of layers with heads of ", heads.dim, " and of ",
             layer.attention.head_dim, ", expected heads of one size");
    ropes.push_back(in_context(std::string(key) + "." + std::string(type),
                               [&] { return parse_rope(*entry, reader, config, heads); }));
    if (has_local_theta && !find_field(*entry, "rope_theta"))
      ropes.back().theta = reader.required_number("rope_local_base_freq");
  }
  return ropes;
}

/// The ropes that an object describes: that of all layers, or one for each type of layer. object:
/// null where the file has none.
std::vector<RopeConfig> ropes_of(std::string_view key, const Json* object,
                                 const ConfigReader& reader, const ModelConfig& config) {
  if (object && !object->is_object()) fail_kind(key, "an object", *object);
  if (object && is_by_layer_type(*object)) return ropes_by_type(key, *object, reader, config);
  const auto parse = [&](const Json& global) {
    return parse_rope(global, reader, config, heads_of(config));
  };
  std::vector<RopeConfig> ropes{object ? in_context(key, [&] { return parse(*object); })
                                       : parse(Json::object())};
  if (config.architecture->local_rope != LocalRope::kSame)
    ropes.push_back(parse_local_rope(reader, config));
  return ropes;
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

size_t RopeConfig::axis_of(int64_t pair) const {
  if (!has_sections()) return 0;
  if (sections_are_interleaved) {
    const auto axis = static_cast<size_t>(pair % 3);
    return pair < 3 * sections[axis] ? axis : 0;
  }
  if (pair < sections[0]) return 0;
  return pair < sections[0] + sections[1] ? 1 : 2;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void parse_ropes(const ConfigReader& reader, ModelConfig& config) {
  const Positions positions = config.architecture->positions;
  if (positions == Positions::kLearned || positions == Positions::kSinusoidal ||
      positions == Positions::kNone || positions == Positions::kAlibi)
    return;
  constexpr std::string_view kScaling = "rope_scaling", kParameters = "rope_parameters";
  // As in transformers 5.23, `convert_rope_params_to_dict`, an empty rope_scaling is none.
  const Json* scaling = reader.find(kScaling);
  if (scaling && scaling->empty()) scaling = nullptr;
  const Json* parameters = reader.find(kParameters);
  if (parameters || !scaling) config.ropes = ropes_of(kParameters, parameters, reader, config);
  if (!scaling) return;
  std::vector<RopeConfig> ropes = ropes_of(kScaling, scaling, reader, config);
  // transformers takes the first; engines take the one or the other.
  if (parameters && ropes != config.ropes)
    fail("keys '", kScaling, "' and '", kParameters,
         "' differ in what they say; expected one of them, or the same in both");
  config.ropes = std::move(ropes);
}

void parse_ropes_by_layer(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "layer_rope_theta";
  const Json* list = reader.find(kKey);
  if (!list) return;
  check_one_a_layer(kKey, *list, std::ssize(config.layers));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const double theta = list->at(i) == 0 ? 0.0 : number_at(*list, i, "rope_theta", kKey);
    config.layers[i].rope = theta == 0.0 ? kNoRope : rope_with_theta(theta, config);
  }
}

}  // namespace kvcal
