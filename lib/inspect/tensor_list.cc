#include "inspect/tensor_list.h"

#include <algorithm>
#include <map>

#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr std::string_view kWeight = ".weight";

/// "weight_scale" or another word of an FP8 Linear; empty for any other tensor.
std::string_view scale_word(std::string_view name, const std::map<std::string, Role>& roles) {
  for (const std::string_view word :
       {"weight_scale", "input_scale", "activation_scale", "weight_zero_point", "input_zero_point"})
    if (name.ends_with(word) &&
        roles.contains(std::string(name.substr(0, name.size() - word.size())) + "weight"))
      return word;
  return {};
}

/// Names of all tensors that the family may have, with their roles; those of absent ones too. A
/// name that stands for several has the role that it has in its layer.
std::map<std::string, Role> roles_of(const ModelConfig& config) {
  std::map<std::string, Role> roles;
  const auto add = [&](const TensorRow& row, const std::string& prefix, const LayerConfig* layer) {
    const int64_t count = row.is_numbered() ? config.size_of(row.repeat, layer) : 1;
    for (int64_t i = 0; i < count; ++i) {
      const std::string name = prefix + row.name_of(i);
      roles.emplace(name, row.role);
      if (!name.ends_with(kWeight)) continue;
      const std::string other = renamed_expert(name.substr(0, name.size() - kWeight.size()));
      if (!other.empty()) roles.emplace(other + std::string(kWeight), row.role);
    }
    for (const SplitRow& part : row.split)
      for (int64_t i = 0; i < config.size_of(row.repeat, layer); ++i)
        roles.emplace(prefix + numbered(part.name, i), part.role);
  };
  for (const TensorRow& row : config.architecture->model_tensors)
    add(row, row.is_of_head() ? config.head_prefix : config.backbone_prefix, nullptr);
  for (const bool wanted : {true, false})
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const TensorRow& row : config.architecture->layer_tensors) {
        const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
        if (config.holds(row.conditions, &own) == wanted)
          add(row, config.layer_prefix(layer), &own);
      }
  return roles;
}

}  // namespace

std::vector<ListedTensor> list_tensors(const ModelDir& model_dir, const ModelConfig& config) {
  constexpr std::string_view kBlockScale = "_scale_inv";
  const std::map<std::string, Role> roles = roles_of(config);
  const auto kv_scales = kv_scale_names(config);
  std::vector<ListedTensor> tensors;
  for (const std::string& name : model_dir.tensor_names()) {
    ListedTensor entry{name, "none", "not read", &model_dir.tensor(name)};
    if (const auto role = roles.find(name); role != roles.end()) {
      entry.role = row_of(role->second).name;
      entry.group = row_of(role->second).group;
    } else if (kv_scales.contains(name)) {
      entry.role = "kv_scale";
      entry.group = "KV scales";
    } else if (name.ends_with(kBlockScale) &&
               roles.contains(name.substr(0, name.size() - kBlockScale.size()))) {
      entry.role = "block_scale";
      entry.group = "block scales";
    } else if (const std::string_view word = scale_word(name, roles); !word.empty()) {
      entry.role = word;
      entry.group = "FP8 scales";
    }
    tensors.push_back(std::move(entry));
  }
  return tensors;
}

std::vector<report::TensorKind> group_sizes(const std::vector<ListedTensor>& tensors) {
  std::vector<report::TensorKind> groups;
  for (const ListedTensor& entry : tensors) {
    auto group = std::ranges::find(groups, entry.group, &report::TensorKind::kind);
    if (group == groups.end())
      group = groups.insert(groups.end(), {.kind = std::string(entry.group)});
    ++group->count;
    group->bytes += entry.tensor->bytes.size();
  }
  return groups;
}

}  // namespace kvcal
