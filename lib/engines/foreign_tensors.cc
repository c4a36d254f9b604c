#include "engines/foreign_tensors.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "family/expected_tensors.h"

namespace kvcal {
namespace {

using NameSet = std::set<std::string, std::less<>>;

/// Whether the engine makes another model than one of texts, with a head of its own for scores,
/// labels or embeddings. Source: vLLM 0.32, `as_seq_cls_model`, `as_embedding_model`.
bool has_other_head(const ModelDir& model_dir) {
  const auto listed = model_dir.config().find("architectures");
  if (listed == model_dir.config().end() || !listed->is_array() || listed->empty() ||
      !listed->front().is_string())
    return false;
  const auto& name = listed->front().get_ref<const std::string&>();
  return !name.ends_with("ForCausalLM") && !name.ends_with("LMHeadModel") &&
         !name.ends_with("ForConditionalGeneration");
}

struct KnownNames {
  NameSet tensors;
  NameSet modules;  ///< that hold tensors
};

KnownNames known_names(const ModelConfig& config) {
  KnownNames known;
  const auto add = [&](const std::string& name) {
    known.tensors.insert(name);
    known.modules.insert(name.substr(0, name.rfind('.')));
  };
  for (const ExpectedTensor& tensor : expected_tensors(config)) add(tensor.name);
  // The file may hold a tied lm_head anyway.
  for (const TensorRow& row : config.architecture->model_tensors)
    if (row.is_of_head()) add(config.head_prefix + std::string(row.name));
  return known;
}

bool is_known_tensor(const std::string& name, const KnownNames& known, bool has_quantized_weights) {
  // Columns in the order of activations, which loaders have no place for any more. Source: vLLM
  // 0.32, run with such a checkpoint.
  if (name.ends_with(".weight_g_idx")) return false;
  if (known.tensors.contains(name) || name.find(".experts.") != std::string::npos) return true;
  if (!known.modules.contains(name.substr(0, name.rfind('.')))) return false;
  return has_quantized_weights || name.ends_with(".bias");
}

}  // namespace

std::vector<std::string> foreign_tensors(const ModelDir& model_dir, const ModelConfig& config,
                                         const std::vector<ScaleTensor>& scales,
                                         bool has_quantized_weights) {
  const KnownNames known = known_names(config);
  NameSet own;
  for (const ScaleTensor& scale : scales) own.insert(scale.name);
  NameSet foreign;
  const bool other_head = has_other_head(model_dir);
  for (const std::string& name : model_dir.tensor_names()) {
    if (other_head && is_beside_model(name, config)) continue;
    if (own.contains(name) || is_unused_tensor(name, config) ||
        is_known_tensor(name, known, has_quantized_weights))
      continue;
    ScaleTensor tensor;
    tensor.name = tensor.rest = name;
    foreign.insert(general_name(tensor, config));
  }
  return {foreign.begin(), foreign.end()};
}

}  // namespace kvcal
