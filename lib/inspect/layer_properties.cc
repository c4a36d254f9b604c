#include "inspect/properties.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/text.h"

namespace kvcal {
namespace {

std::string_view name_of(Mixer mixer) {
  constexpr std::string_view kWords[] = {
      "attention",           "Mamba", "Mamba 2", "gated delta net", "short convolution",
      "lightning attention", "none"};
  return kWords[static_cast<size_t>(mixer)];
}

std::string recurrence_text(const ModelConfig& config) {
  const RecurrentConfig& mixer = config.recurrent;
  const Mixer kind = config.architecture->recurrence;
  std::string text(name_of(kind));
  if (kind == Mixer::kMamba) {
    text += ", " + counted(mixer.channels, "channel") + ", states of " +
            std::to_string(mixer.state_dim) + ", step sizes of rank " +
            std::to_string(mixer.step_rank);
  } else if (kind == Mixer::kShortConvolution) {
    text += ", " + counted(mixer.channels, "channel");
  } else {
    text += ", " + counted(mixer.heads, "head") + " of " + std::to_string(mixer.head_dim) + ", " +
            (kind == Mixer::kDeltaNet ? counted(mixer.groups, "key")
                                      : counted(mixer.groups, "group") + " of states") +
            " of " + std::to_string(mixer.state_dim);
    if (mixer.fades_by_key) text += ", decays by key";
    if (mixer.gate_rank > 0)
      text += " and gates of rank " + std::to_string(mixer.gate_rank);
    else if (mixer.decay_rank > 0)
      text += " of rank " + std::to_string(mixer.decay_rank);
    if (mixer.decay_floor < 0.0f) text += " above exp(" + short_float(mixer.decay_floor) + ")";
  }
  return text + ", convolution over " + counted(mixer.kernel, "token") + ", ";
}

/// Heads of layers, where they differ. Layers of one kind are one entry.
void add_attention_sizes(Properties& properties, const ModelConfig& config) {
  std::vector<std::pair<AttentionSizes, std::vector<int64_t>>> kinds;
  for (const int64_t layer : config.attention_layers()) {
    const AttentionSizes& own = config.attention(layer);
    auto kind = std::ranges::find_if(kinds, [&](const auto& entry) {
      const AttentionSizes& sizes = entry.first;
      return std::tie(sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.value_dim) ==
             std::tie(own.heads, own.kv_heads, own.head_dim, own.value_dim);
    });
    if (kind == kinds.end()) kind = kinds.insert(kind, {own, {}});
    kind->second.push_back(layer);
  }
  if (kinds.size() < 2) return;
  Json json = Json::array();
  std::string text;
  const bool has_one_count = std::ranges::all_of(
      kinds, [&](const auto& kind) { return kind.first.heads == kinds.front().first.heads; });
  for (const auto& [sizes, layers] : kinds) {
    json.push_back({{"layers", layers},
                    {"heads", sizes.heads},
                    {"kv_heads", sizes.kv_heads},
                    {"head_dim", sizes.head_dim},
                    {"value_dim", sizes.value_dim}});
    text += (text.empty() ? "" : "; ") +
            (has_one_count ? "" : counted(sizes.heads, "head") + ", ") +
            counted(sizes.kv_heads, "KV head") + " of " + std::to_string(sizes.head_dim) +
            (sizes.value_dim == sizes.head_dim ? "" : ", V of " + std::to_string(sizes.value_dim)) +
            " " + layers_text(layers, config);
  }
  properties.push_back({"attention_sizes", json, text});
}

/// Layers that read the cache of another, and layers where V is the projection of K.
void add_shared_caches(Properties& properties, const ModelConfig& config) {
  Json json = Json::array();
  std::string text;
  for (const int64_t source : config.shared_layers()) {
    const std::vector<int64_t> readers = config.layers_where([&](const LayerConfig& layer) {
      return layer.has_attention && !layer.has_own_cache && layer.cache_layer == source;
    });
    json.push_back({{"layer", source}, {"read_by", readers}});
    text += (text.empty() ? "" : "; ") + ("layer " + std::to_string(source)) + "'s, read " +
            layers_text(readers, config);
  }
  if (!json.empty()) properties.push_back({"shared_caches", json, text});
  const std::vector<int64_t> same = config.layers_where(
      [](const LayerConfig& layer) { return layer.has_attention && !layer.has_value_projection; });
  if (!same.empty())
    properties.push_back({"layers_with_one_projection_of_k_and_v", same, range_text(same)});
}

}  // namespace

std::string layers_text(const std::vector<int64_t>& layers, const ModelConfig& config) {
  if (static_cast<int64_t>(layers.size()) == config.num_hidden_layers) return "in all layers";
  return "in " + layer_range_text(layers);
}

void add_mixers(Properties& properties, const ModelConfig& config) {
  const std::vector<int64_t> attending = config.attention_layers();
  const std::vector<int64_t> recurrent = config.layers_where(&LayerConfig::has_recurrence);
  const bool is_hybrid = config.architecture->recurrence != Mixer::kNone;
  properties.push_back(
      {"attention_layers", attending, is_hybrid ? range_text(attending) : std::string()});
  add_attention_sizes(properties, config);
  add_shared_caches(properties, config);
  if (recurrent.empty()) {
    properties.push_back({"recurrence", nullptr, ""});
  } else {
    const RecurrentConfig& mixer = config.recurrent;
    properties.push_back({"recurrence",
                          {{"kind", name_of(config.architecture->recurrence)},
                           {"layers", recurrent},
                           {"heads", mixer.heads},
                           {"head_dim", mixer.head_dim},
                           {"groups", mixer.groups},
                           {"state_dim", mixer.state_dim},
                           {"channels", mixer.channels},
                           {"kernel", mixer.kernel},
                           {"step_rank", mixer.step_rank}},
                          recurrence_text(config) + layers_text(recurrent, config)});
  }
  const std::vector<int64_t> dense =
      config.layers_where([](const LayerConfig& layer) { return layer.has_mlp && !layer.is_moe; });
  properties.push_back(
      {"dense_mlp_layers", dense,
       config.architecture->has_single_blocks ? range_text(dense) : std::string()});
}

namespace {

std::string_view name_of(RopeConfig::Type type) {
  constexpr std::string_view kWords[] = {"default",  "linear", "dynamic",     "yarn",
                                         "longrope", "llama3", "proportional"};
  return kWords[static_cast<size_t>(type)];
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
    text += ", " + std::to_string(rope.turning_dim) + " of " +
            counted(rope.rotary_dim, "dimension") + " turn";
    if (rope.factor != 1.0) text += ", factor " + short_float(rope.factor);
  } else if (rope.type != RopeConfig::Type::kDefault) {
    text += ", factor " + short_float(rope.factor) + " over " +
            counted(rope.original_max_position_embeddings, "position");
  }
  if (rope.type == RopeConfig::Type::kLlama3)
    text += ", frequencies " + short_float(rope.low_freq_factor) + " to " +
            short_float(rope.high_freq_factor);
  if (rope.type == RopeConfig::Type::kYarn)
    text += ", beta " + short_float(rope.beta_fast) + " and " + short_float(rope.beta_slow);
  if (rope.query_beta > 0) text += ", queries grow by " + short_float(rope.query_beta);
  const int64_t whole = config.architecture->has_latent_attention
                            ? config.layer(users.front()).latent.rope_dim
                            : config.attention(users.front()).head_dim;
  if (rope.rotary_dim != whole)
    text += ", " + std::to_string(rope.rotary_dim) + " of " + counted(whole, "dimension");
  return text + (config.rope_is_interleaved ? ", interleaved" : "");
}

}  // namespace

void add_positions(Properties& properties, const ModelConfig& config) {
  std::map<int64_t, std::vector<int64_t>> layers;
  for (const int64_t i : config.attention_layers())
    layers[config.layers[static_cast<size_t>(i)].rope].push_back(i);
  const bool is_learned = config.architecture->positions == Positions::kLearned;
  const bool is_alibi = config.architecture->positions == Positions::kAlibi;
  const bool has_own = is_learned || is_alibi;
  const bool has_none = !has_own && layers.size() == 1 && layers.contains(kNoRope);
  const std::string kind = is_learned ? "learned" : is_alibi ? "alibi" : has_none ? "none" : "rope";
  properties.push_back({"positions", kind, kind == "rope" ? "" : is_alibi ? "ALiBi" : kind});
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
  const std::vector<int64_t> without = has_own ? std::vector<int64_t>() : layers[kNoRope];
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
            (window > 0 ? counted(window, "token") + " " : std::string("all tokens ")) +
            layers_text(users, config);
  }
  properties.push_back({"windows", windows, text});
}

}  // namespace kvcal
