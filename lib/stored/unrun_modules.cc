#include "stored/unrun_modules.h"

#include <set>

#include "family/expected_tensors.h"
#include "family/modules.h"

namespace kvcal {
namespace {

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.rfind('.'));
}

std::set<std::string> run_modules(const ModelConfig& config) {
  std::set<std::string> names;
  for (const ModuleName& module : list_modules(config)) {
    names.insert(module.name);
    if (!module.alias.empty()) names.insert(module.alias);
  }
  for (const ExpectedTensor& tensor : expected_tensors(config))
    if (!config.is_draft(tensor.layer)) names.insert(module_of(tensor.name));
  return names;
}

/// Class of a tensor's module; empty for no matrix. A checkpoint does not say which matrices are
/// embeddings.
std::string class_of(const TensorView& tensor) {
  constexpr std::string_view kEnding = ".weight";
  if (!tensor.name.ends_with(kEnding) || tensor.shape.rank() != 2) return "";
  const std::string_view module = tensor.name.substr(0, tensor.name.size() - kEnding.size());
  const bool is_looked_up = module.substr(module.rfind('.') + 1).find("embed") != module.npos;
  return is_looked_up ? "Embedding" : "Linear";
}

}  // namespace

std::vector<UnrunModule> unrun_modules(const ModelDir& model_dir, const ModelConfig& config) {
  const std::set<std::string> run = run_modules(config);
  std::vector<UnrunModule> modules;
  for (const std::string& tensor : model_dir.tensor_names()) {
    const std::string name = module_of(tensor);
    if (run.contains(name)) continue;
    const std::string class_name = class_of(model_dir.tensor(tensor));
    // Names are sorted, so a module's tensors are adjacent.
    if (modules.empty() || modules.back().name != name) modules.push_back({name, class_name});
    if (!class_name.empty()) modules.back().class_name = class_name;
  }
  return modules;
}

}  // namespace kvcal
