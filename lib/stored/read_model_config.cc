#include "stored/read_model_config.h"

#include <algorithm>
#include <optional>
#include <set>

#include "family/expected_tensors.h"
#include "family/wrapper.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Sets the prefixes under which the checkpoint holds the text model.
void find_prefix(const ModelDir& model_dir, ModelConfig& config) {
  std::string looked_for;
  for (const TensorRow& row : config.architecture->model_tensors)
    for (const NamePrefix& prefix : name_prefixes(config)) {
      if (row.role != Role::kEmbedding) continue;
      const std::string name = prefix.backbone + std::string(row.name);
      looked_for += "\n  " + shown_text(name);
      if (!model_dir.find(name)) continue;
      config.backbone_prefix = prefix.backbone;
      config.head_prefix = prefix.head;
      return;
    }
  if (!config.wrapper_type.empty() && !config.wrapper)
    fail("model_type '", config.wrapper_type, "' is not known, and its text model, a ",
         config.model_type, ", is at none of the usual places; expected one of", Lines{looked_for});
}

/// Checkpoints of one family may stack experts as [in, out] or as [out, in].
void find_expert_layout(const ModelDir& model_dir, ModelConfig& config) {
  if (!config.experts_in_out) return;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    if (tensor.row->role != Role::kExpertGateUp) continue;
    const TensorView* found = model_dir.find(tensor.name);
    const Shape other{tensor.shape[0], tensor.shape[2], tensor.shape[1]};
    if (found && found->shape == other) config.experts_in_out = false;
    return;
  }
}

/// Finds by the file whether its tensors have the names and parts that transformers saves: none is
/// there that published files alone have. Not all of those need be: quantized weights are stored in
/// other parts.
void find_saved_names(const ModelDir& model_dir, ModelConfig& config) {
  const auto is_published = [](const Condition& condition) {
    return condition.model == &ModelConfig::has_saved_names && !condition.wanted;
  };
  const std::vector<ExpectedTensor> expected = expected_tensors(config);
  std::set<std::string_view> published;
  for (const ExpectedTensor& tensor : expected)
    if (std::ranges::any_of(tensor.row->conditions, is_published)) published.insert(tensor.name);
  if (published.empty()) return;
  ModelConfig saved = config;
  saved.has_saved_names = true;
  for (const ExpectedTensor& tensor : expected_tensors(saved)) published.erase(tensor.name);
  const auto is_there = [&](std::string_view name) { return model_dir.find(name) != nullptr; };
  config.has_saved_names = !published.empty() && std::ranges::none_of(published, is_there);
}

/// Whether the checkpoint has the weight of lm_head; in_any_form: or any other tensor of it.
bool has_head(const ModelDir& model_dir, const ModelConfig& config, bool in_any_form) {
  return std::ranges::any_of(config.architecture->model_tensors, [&](const TensorRow& row) {
    if (row.role != Role::kLmHead) return false;
    const std::string weight = config.head_prefix + std::string(row.name);
    if (!in_any_form) return model_dir.find(weight) != nullptr;
    const std::string module = weight.substr(0, weight.rfind('.') + 1);
    return std::ranges::any_of(model_dir.tensor_names(),
                               [&](const std::string& name) { return name.starts_with(module); });
  });
}

/// Throws Error for a tensor that runs, and that the index alone has.
void check_index(const ModelDir& model_dir, const ModelConfig& config) {
  for (const AbsentTensor& tensor : model_dir.absent())
    if (!is_unused_tensor(tensor.name, config) && !is_beside_model(tensor.name, config))
      fail(tensor.problem);
}

}  // namespace

ModelConfig read_model_config(const ModelDir& model_dir, const FamilyChoice& family) {
  ModelConfig config = in_context((model_dir.path() / "config.json").string(),
                                  [&] { return parse_model_config(model_dir.config(), family); });
  find_prefix(model_dir, config);
  find_expert_layout(model_dir, config);
  find_saved_names(model_dir, config);
  if (config.ties_by_file) config.tie_word_embeddings = !has_head(model_dir, config, false);
  check_index(model_dir, config);
  config.lacks_head = !config.tie_word_embeddings && !has_head(model_dir, config, true);
  return config;
}

namespace {

/// The key with which config.json, or its text_config, announces draft layers, and their number;
/// nullopt: it has no such key.
std::optional<std::pair<std::string_view, int64_t>> announced_layers(const Json& json) {
  for (const Json* config : {find_field(json, "text_config"), &json})
    for (const std::string_view key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"})
      if (config && config->is_object() && find_field(*config, key))
        return std::pair(key, optional_int(*config, key).value_or(0));
  return std::nullopt;
}

}  // namespace

void find_draft_layer(const ModelDir& model_dir, ModelConfig& config, Diagnostics& diagnostics) {
  if (config.architecture->draft == DraftLayer::kNone || config.has_draft()) return;
  const auto announced = announced_layers(model_dir.config());
  if (announced ? announced->second < 1 : config.architecture->draft != DraftLayer::kMtp) return;
  ModelConfig with_draft = config;
  append_draft_layer(with_draft);
  std::vector<std::string> missing;
  size_t wanted = 0;
  for (const ExpectedTensor& tensor : expected_tensors(with_draft)) {
    if (!with_draft.is_draft(tensor.layer)) continue;
    ++wanted;
    const TensorView* found = model_dir.find(tensor.name);
    if (!found || found->shape != tensor.shape) missing.push_back(tensor.name);
  }
  if (missing.empty()) {
    config = std::move(with_draft);
  } else if (announced) {
    diagnostics.warn(model_dir.given_path().string() + ": config.json has " +
                     std::string(announced->first) + " " + std::to_string(announced->second) +
                     ", and " + std::to_string(missing.size()) + " of the " +
                     counted(wanted, "tensor") + " of its K and V are missing or have " +
                     "another shape, " + missing.front() + " first; the layer gets no scales");
  }
}

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
