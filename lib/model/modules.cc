#include "model/modules.h"

#include <algorithm>

namespace kvcal {
namespace {

constexpr std::string_view kWeight = ".weight";

bool is_embedding(Role role) {
  return role == Role::kEmbedding || role == Role::kPositionEmbedding;
}

/// What transformers calls the module of a matrix; nothing for a row that is no module of its own.
std::string_view class_of(const TensorRow& row) {
  // Cohere's norms of Q and K have a weight a head.
  const bool is_norm = row.role == Role::kQueryNorm || row.role == Role::kKeyNorm;
  const bool is_matrix = row.name.ends_with(kWeight) && row.shape.size() == 2 && !is_norm;
  if (!is_matrix || row.is_stacked()) return {};
  if (is_embedding(row.role)) return "Embedding";
  return row.layout == Layout::kInOut ? "Conv1D" : "Linear";
}

void add_modules(const ModelConfig& config, const TensorRow& row, const std::string& prefix,
                 const LayerConfig* layer, std::vector<ModuleName>& modules) {
  const std::string_view class_name = class_of(row);
  // A tied lm_head is a module all the same.
  if (class_name.empty() || (row.role != Role::kLmHead && !config.holds(row.conditions, layer)))
    return;
  for (int64_t i = 0; i < config.size_of(row.repeat); ++i) {
    const std::string name = prefix + row.name_of(i);
    modules.push_back(
        {name.substr(0, name.size() - kWeight.size()), std::string(class_name), row.role, i});
  }
}

}  // namespace

std::vector<ModuleName> list_modules(const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  std::vector<ModuleName> modules;
  for (const TensorRow& row : architecture.model_tensors)
    add_modules(config, row, row.is_of_head() ? config.head_prefix : config.backbone_prefix,
                nullptr, modules);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const TensorRow& row : architecture.layer_tensors)
      add_modules(config, row, config.layer_prefix(layer),
                  &config.layers[static_cast<size_t>(layer)], modules);
    if (config.has_attention(layer))
      modules.push_back(
          {config.attention_module(layer), std::string(architecture.attention_class), {}, layer});
  }
  return modules;
}

Role input_of(Role role) {
  switch (role) {
    case Role::kKey:
    case Role::kValue:
    case Role::kQueryKeyValue:
    case Role::kQueryDown:
    case Role::kLatent:
    case Role::kQueryAndGate:
      return Role::kQuery;
    case Role::kGate:
    case Role::kGateUp:
      return Role::kUp;
    case Role::kExpertGate:
    case Role::kExpertGateUp:
      return Role::kExpertUp;
    case Role::kSharedGate:
    case Role::kSharedGateUp:
      return Role::kSharedUp;
    case Role::kSharedExpertGate:
      return Role::kRouter;
    case Role::kMixerGates:
      return Role::kMixerIn;
    default:
      return role;
  }
}

}  // namespace kvcal
