#include "model/modules.h"

namespace kvcal {
namespace {

/// Weights with two dimensions are Linear modules, but for the embedding; the rest have no class
/// recipes name.
void add_module(const TensorRow& row, const std::string& prefix, std::vector<ModuleName>& modules) {
  constexpr std::string_view kWeight = ".weight";
  if (!row.name.ends_with(kWeight) || row.shape.size() != 2) return;
  const std::string_view module = row.name.substr(0, row.name.size() - kWeight.size());
  modules.push_back(
      {prefix + std::string(module), row.role == Role::kEmbedding ? "Embedding" : "Linear"});
}

}  // namespace

std::vector<ModuleName> list_modules(const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  std::vector<ModuleName> modules;
  for (const TensorRow& row : architecture.model_tensors) add_module(row, "", modules);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = std::string(architecture.layer_prefix) + std::to_string(layer) + ".";
    for (const TensorRow& row : architecture.layer_tensors) add_module(row, prefix, modules);
    modules.push_back({config.attention_module(layer), std::string(architecture.attention_class)});
  }
  return modules;
}

}  // namespace kvcal
