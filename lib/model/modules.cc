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
  const bool is_stacked = row.repeat != Dim::kOne && row.name.find("{}") == std::string_view::npos;
  if (!is_matrix || is_stacked) return {};
  if (is_embedding(row.role)) return "Embedding";
  return row.layout == Layout::kInOut ? "Conv1D" : "Linear";
}

void add_modules(const ModelConfig& config, const TensorRow& row, const std::string& prefix,
                 const LayerConfig* layer, std::vector<ModuleName>& modules) {
  const std::string_view class_name = class_of(row);
  const auto holds = [&](const Condition& condition) { return config.holds(condition, layer); };
  // A tied lm_head is a module all the same.
  if (class_name.empty() ||
      (row.role != Role::kLmHead && !std::ranges::all_of(row.conditions, holds)))
    return;
  const std::string name(row.name.substr(0, row.name.size() - kWeight.size()));
  const size_t number = name.find("{}");
  if (number == std::string::npos) {
    modules.push_back({prefix + name, std::string(class_name), row.role, 0});
    return;
  }
  for (int64_t i = 0; i < config.size_of(row.repeat); ++i)
    modules.push_back(
        {prefix + name.substr(0, number) + std::to_string(i) + name.substr(number + 2),
         std::string(class_name), row.role, i});
}

}  // namespace

std::vector<ModuleName> list_modules(const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  std::vector<ModuleName> modules;
  for (const TensorRow& row : architecture.model_tensors)
    add_modules(config, row,
                row.role == Role::kLmHead ? config.head_prefix : config.backbone_prefix, nullptr,
                modules);
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
