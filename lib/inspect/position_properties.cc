#include <map>

#include "core/number_text.h"
#include "inspect/properties.h"

namespace kvcal {
namespace {

std::string_view name_of(RopeConfig::Type type) {
  switch (type) {
    case RopeConfig::Type::kDefault:
      return "default";
    case RopeConfig::Type::kLinear:
      return "linear";
    case RopeConfig::Type::kDynamic:
      return "dynamic";
    case RopeConfig::Type::kYarn:
      return "yarn";
    case RopeConfig::Type::kLongRope:
      return "longrope";
    case RopeConfig::Type::kLlama3:
      return "llama3";
    case RopeConfig::Type::kProportional:
      return "proportional";
  }
  return "";
}

Json rope_json(const RopeConfig& rope, const std::vector<int64_t>& layers, bool is_interleaved) {
  Json json = {{"layers", layers},
               {"type", name_of(rope.type)},
               {"theta", rope.theta},
               {"rotary_dim", rope.rotary_dim},
               {"interleaved", is_interleaved},
               {"factor", rope.factor},
               {"original_max_position_embeddings", rope.original_max_position_embeddings}};
  if (rope.type == RopeConfig::Type::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == RopeConfig::Type::kProportional) json["turning_dim"] = rope.turning_dim;
  if (rope.type == RopeConfig::Type::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["mscale"] = rope.mscale;
    json["mscale_all_dim"] = rope.mscale_all_dim;
    json["truncate"] = rope.truncate;
    json["query_beta"] = rope.query_beta;
  }
  if (rope.type == RopeConfig::Type::kLongRope) {
    json["short_factor"] = rope.short_factor;
    json["long_factor"] = rope.long_factor;
  }
  if (rope.attention_factor > 0) json["attention_factor"] = rope.attention_factor;
  return json;
}

/// users: layers whose heads the rope turns.
std::string rope_text(const RopeConfig& rope, const std::vector<int64_t>& users,
                      const ModelConfig& config) {
  std::string text = std::string(name_of(rope.type)) + ", theta " + short_float(rope.theta);
  if (rope.type == RopeConfig::Type::kProportional) {
    text += ", " + std::to_string(rope.turning_dim) + " of " + std::to_string(rope.rotary_dim) +
            " dimensions turn";
    if (rope.factor != 1.0) text += ", factor " + short_float(rope.factor);
  } else if (rope.type != RopeConfig::Type::kDefault) {
    text += ", factor " + short_float(rope.factor) + " over " +
            std::to_string(rope.original_max_position_embeddings) + " positions";
  }
  if (rope.type == RopeConfig::Type::kLlama3)
    text += ", frequencies " + short_float(rope.low_freq_factor) + " to " +
            short_float(rope.high_freq_factor);
  if (rope.type == RopeConfig::Type::kYarn)
    text += ", beta " + short_float(rope.beta_fast) + " and " + short_float(rope.beta_slow);
  if (rope.query_beta > 0) text += ", queries grow by " + short_float(rope.query_beta);
  const int64_t whole = config.architecture->has_latent_attention
                            ? config.latent.rope_dim
                            : config.attention(users.front()).head_dim;
  if (rope.rotary_dim != whole)
    text += ", " + std::to_string(rope.rotary_dim) + " of " + std::to_string(whole) + " dimensions";
  return text + (config.rope_is_interleaved ? ", interleaved" : "");
}

}  // namespace

void add_positions(Properties& properties, const ModelConfig& config) {
  std::map<int64_t, std::vector<int64_t>> layers;
  for (const int64_t i : config.attention_layers())
    layers[config.layers[static_cast<size_t>(i)].rope].push_back(i);
  const bool is_learned = config.architecture->positions == Positions::kLearned;
  const bool has_none = !is_learned && layers.size() == 1 && layers.contains(kNoRope);
  const std::string kind = is_learned ? "learned" : has_none ? "none" : "rope";
  properties.push_back({"positions", kind, kind == "rope" ? "" : kind});
  Json ropes = Json::array();
  std::string text;
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    const std::vector<int64_t>& users = layers[static_cast<int64_t>(i)];
    if (users.empty()) continue;
    ropes.push_back(rope_json(config.ropes[i], users, config.rope_is_interleaved));
    text += (text.empty() ? "" : "; ") + rope_text(config.ropes[i], users, config) + ", " +
            layers_text(users, config);
  }
  properties.push_back({"ropes", ropes, text});
  const std::vector<int64_t> without = is_learned ? std::vector<int64_t>() : layers[kNoRope];
  properties.push_back({"layers_without_positions", without, has_none ? "" : range_text(without)});
}

void add_windows(Properties& properties, const ModelConfig& config) {
  std::map<int64_t, std::vector<int64_t>> layers;
  for (const int64_t i : config.attention_layers())
    layers[config.layers[static_cast<size_t>(i)].sliding_window].push_back(i);
  Json windows = Json::array();
  std::string text;
  // Windows first, then the layers that see everything.
  for (auto it = layers.rbegin(); it != layers.rend(); ++it) {
    const auto& [window, users] = *it;
    windows.push_back({{"sliding_window", window > 0 ? Json(window) : Json()}, {"layers", users}});
    text += (text.empty() ? "" : "; ") +
            (window > 0 ? std::to_string(window) + " tokens " : std::string("all tokens ")) +
            layers_text(users, config);
  }
  properties.push_back({"windows", windows, text});
}

}  // namespace kvcal
