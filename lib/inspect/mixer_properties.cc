#include <algorithm>
#include <tuple>

#include "core/number_text.h"
#include "inspect/properties.h"

namespace kvcal {
namespace {

std::string_view name_of(Mixer mixer) {
  switch (mixer) {
    case Mixer::kAttention:
      return "attention";
    case Mixer::kMamba:
      return "Mamba";
    case Mixer::kMamba2:
      return "Mamba 2";
    case Mixer::kDeltaNet:
      return "gated delta net";
    case Mixer::kShortConvolution:
      return "short convolution";
    case Mixer::kNone:
      return "none";
  }
  return "";
}

std::string recurrence_text(const ModelConfig& config) {
  const RecurrentConfig& mixer = config.recurrent;
  const Mixer kind = config.architecture->recurrence;
  std::string text(name_of(kind));
  if (kind == Mixer::kMamba) {
    text += ", " + std::to_string(mixer.channels) + " channels, states of " +
            std::to_string(mixer.state_dim) + ", step sizes of rank " +
            std::to_string(mixer.step_rank);
  } else if (kind == Mixer::kShortConvolution) {
    text += ", " + std::to_string(mixer.channels) + " channels";
  } else {
    text += ", " + std::to_string(mixer.heads) + " heads of " + std::to_string(mixer.head_dim) +
            ", " + std::to_string(mixer.groups) +
            (kind == Mixer::kDeltaNet ? " keys of " : " groups of states of ") +
            std::to_string(mixer.state_dim);
  }
  return text + ", convolution over " + std::to_string(mixer.kernel) + " tokens, ";
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
            (has_one_count ? "" : std::to_string(sizes.heads) + " heads, ") +
            std::to_string(sizes.kv_heads) + " KV heads of " + std::to_string(sizes.head_dim) +
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
  return (layers.size() == 1 ? "in layer " : "in layers ") + range_text(layers);
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

}  // namespace kvcal
