#include "fact_parts.h"

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
    case Mixer::kNone:
      return "none";
  }
  return "";
}

template <class Predicate>
std::vector<int64_t> layers_where(const ModelConfig& config, Predicate holds) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    if (holds(config.layers[static_cast<size_t>(i)])) layers.push_back(i);
  return layers;
}

std::vector<int64_t> recurrent_layers(const ModelConfig& config) {
  return layers_where(config, [](const LayerConfig& layer) { return layer.has_recurrence; });
}

std::string recurrence_text(const ModelConfig& config) {
  const RecurrentConfig& mixer = config.recurrent;
  const Mixer kind = config.architecture->recurrence;
  std::string text(name_of(kind));
  if (kind == Mixer::kMamba) {
    text += ", " + text_of(mixer.channels) + " channels, states of " + text_of(mixer.state_dim) +
            ", step sizes of rank " + text_of(mixer.step_rank);
  } else {
    text += ", " + text_of(mixer.heads) + " heads of " + text_of(mixer.head_dim) + ", " +
            text_of(mixer.groups) +
            (kind == Mixer::kDeltaNet ? " keys of " : " groups of states of ") +
            text_of(mixer.state_dim);
  }
  return text + ", convolution over " + text_of(mixer.kernel) + " tokens, ";
}

/// What a sequence keeps in one recurrent layer, as float32.
int64_t state_values(const RecurrentConfig& mixer) {
  return (mixer.kernel - 1) * mixer.channels + mixer.heads * mixer.head_dim * mixer.state_dim;
}

}  // namespace

std::string text_of(int64_t value) {
  return std::to_string(value);
}

std::string layers_text(const std::vector<int64_t>& layers, const ModelConfig& config) {
  if (static_cast<int64_t>(layers.size()) == config.num_hidden_layers) return "in all layers";
  return (layers.size() == 1 ? "in layer " : "in layers ") + range_text(layers);
}

std::vector<int64_t> attention_layers(const ModelConfig& config) {
  return layers_where(config, [](const LayerConfig& layer) { return layer.has_attention; });
}

void add_mixers(Facts& facts, const ModelConfig& config) {
  const std::vector<int64_t> attending = attention_layers(config);
  const std::vector<int64_t> recurrent = recurrent_layers(config);
  const bool is_hybrid = config.architecture->recurrence != Mixer::kNone;
  facts.push_back(
      {"attention_layers", attending, is_hybrid ? range_text(attending) : std::string()});
  if (recurrent.empty()) {
    facts.push_back({"recurrence", nullptr, ""});
  } else {
    const RecurrentConfig& mixer = config.recurrent;
    facts.push_back({"recurrence",
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
      layers_where(config, [](const LayerConfig& layer) { return layer.has_mlp && !layer.is_moe; });
  facts.push_back({"dense_mlp_layers", dense,
                   config.architecture->has_single_blocks ? range_text(dense) : std::string()});
}

Json cache_json(const ModelConfig& config) {
  const int64_t layer = config.cache_heads() * (config.cache_k_dim() + config.cache_v_dim());
  const auto layers = static_cast<int64_t>(attention_layers(config).size());
  const auto recurrent = static_cast<int64_t>(recurrent_layers(config).size());
  const int64_t values = layer * layers;
  return {{"heads", config.cache_heads()},
          {"k_dim", config.cache_k_dim()},
          {"v_dim", config.cache_v_dim()},
          {"layers", layers},
          {"values_per_token", values},
          {"bytes_per_token_16_bit", 2 * values},
          {"bytes_per_token_fp8", values},
          {"state_bytes_per_sequence", 4 * recurrent * state_values(config.recurrent)}};
}

}  // namespace kvcal
