#include "family/modules.h"

#include <algorithm>

namespace kvcal {
namespace {

constexpr std::string_view kWeight = ".weight";

/// transformers' class name for the module of a matrix; empty where the row is no module of its
/// own.
std::string_view class_of(const TensorRow& row) {
  const TensorClass tensor_class = row_of(row.role).tensor_class;
  // Cohere's norms of Q and K have one weight per head.
  const bool is_matrix =
      row.name.ends_with(kWeight) && row.shape.size() == 2 && tensor_class != TensorClass::kNorm;
  if (!is_matrix || row.is_stacked()) return {};
  if (tensor_class == TensorClass::kEmbedding) return "Embedding";
  return row.layout == Layout::kInOut ? "Conv1D" : "Linear";
}

/// Second name of a module; empty where it has none. Source: transformers 5.17
/// `conversion_mapping.py`, "mixtral" and "phimoe"; llm-compressor then makes Linears of the
/// stacked experts.
std::string alias_of(std::string name) {
  static constexpr std::string_view kOld = ".block_sparse_moe.", kNew = ".mlp.";
  static constexpr std::pair<std::string_view, std::string_view> kEndings[] = {
      {".w1", ".gate_proj"}, {".w2", ".down_proj"}, {".w3", ".up_proj"}, {".gate", ".gate"}};
  if (name.ends_with(".lm_head")) return "lm_head";  // of a text model inside another
  const size_t place = name.find(kOld);
  for (const auto& [old_ending, new_ending] : kEndings)
    if (place != std::string::npos && name.ends_with(old_ending)) {
      name.replace(name.size() - old_ending.size(), old_ending.size(), new_ending);
      return name.replace(place, kOld.size(), kNew);
    }
  return {};
}

void add_modules(const ModelConfig& config, const TensorRow& row, const std::string& prefix,
                 const LayerConfig* layer, std::vector<ModuleName>& modules) {
  const std::string_view class_name = class_of(row);
  // A tied lm_head is also a module.
  if (class_name.empty() || (row.role != Role::kLmHead && !config.holds(row.conditions, layer)) ||
      (row.is_of_head() && config.lacks_head))
    return;
  for (int64_t i = 0; i < config.size_of(row.repeat, layer); ++i) {
    const std::string name = prefix + row.name_of(i);
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const bool is_renamed = !row.module.empty();
    modules.push_back({.name = is_renamed ? prefix + std::string(row.module) : module,
                       .class_name = std::string(class_name),
                       .role = row.role,
                       .index = i,
                       .alias = is_renamed ? module : alias_of(module)});
    if (row.is_run_by_layers) modules.back().layer = 0;
    if (row.is_run_by_last_layer) modules.back().layer = config.num_hidden_layers - 1;
  }
}

/// The Linears of stacked experts, expert by expert.
void add_slices(const ModelConfig& config, int64_t layer, std::vector<ModuleName>& modules) {
  const auto first = std::ssize(modules);
  const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
  for (const TensorRow& row : config.architecture->layer_tensors) {
    if (row.split.empty() || !config.holds(row.conditions, &own)) continue;
    for (const SplitRow& part : row.split)
      for (int64_t i = 0; part.name.ends_with(kWeight) && i < config.size_of(row.repeat, &own);
           ++i) {
        const std::string name = config.layer_prefix(layer) + numbered(part.name, i);
        modules.push_back({.name = name.substr(0, name.size() - kWeight.size()),
                           .class_name = "Linear",
                           .role = part.role,
                           .index = i,
                           .is_slice = true});
      }
  }
  std::stable_sort(modules.begin() + first, modules.end(),
                   [](const ModuleName& a, const ModuleName& b) { return a.index < b.index; });
}

}  // namespace

std::vector<ModuleName> list_modules(const ModelConfig& config) {
  const Architecture& architecture = *config.architecture;
  std::vector<ModuleName> modules;
  for (const TensorRow& row : architecture.model_tensors)
    add_modules(config, row, row.is_of_head() ? config.head_prefix : config.backbone_prefix,
                nullptr, modules);
  size_t done = modules.size();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const TensorRow& row : architecture.layer_tensors)
      add_modules(config, row, config.layer_prefix(layer),
                  &config.layers[static_cast<size_t>(layer)], modules);
    add_slices(config, layer, modules);
    if (config.has_attention(layer))
      modules.push_back({.name = config.attention_module(layer),
                         .class_name = std::string(architecture.attention_class),
                         .role = {},
                         .index = layer});
    for (; done < modules.size(); ++done) modules[done].layer = layer;
  }
  // Only K and V of a draft are calibrated, so its Linears are not run.
  if (config.has_draft())
    modules.push_back({.name = config.attention_module(config.num_hidden_layers),
                       .class_name = std::string(architecture.attention_class),
                       .role = {},
                       .index = config.num_hidden_layers,
                       .layer = config.num_hidden_layers});
  return modules;
}

}  // namespace kvcal
