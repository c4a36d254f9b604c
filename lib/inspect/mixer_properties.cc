#include "inspect/properties.h"

#include "core/number_text.h"

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

std::string recurrence_text(const ModelConfig& config) {
  const RecurrentConfig& mixer = config.recurrent;
  const Mixer kind = config.architecture->recurrence;
  std::string text(name_of(kind));
  if (kind == Mixer::kMamba) {
    text += ", " + std::to_string(mixer.channels) + " channels, states of " +
            std::to_string(mixer.state_dim) + ", step sizes of rank " +
            std::to_string(mixer.step_rank);
  } else {
    text += ", " + std::to_string(mixer.heads) + " heads of " + std::to_string(mixer.head_dim) +
            ", " + std::to_string(mixer.groups) +
            (kind == Mixer::kDeltaNet ? " keys of " : " groups of states of ") +
            std::to_string(mixer.state_dim);
  }
  return text + ", convolution over " + std::to_string(mixer.kernel) + " tokens, ";
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
