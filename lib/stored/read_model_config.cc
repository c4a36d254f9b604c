#include <algorithm>

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

/// Finds by the file whether its tensors have the names and parts that transformers saves.
void find_saved_names(const ModelDir& model_dir, ModelConfig& config) {
  const auto is_published = [](const Condition& condition) {
    return condition.model == &ModelConfig::has_saved_names && !condition.wanted;
  };
  for (const ExpectedTensor& tensor : expected_tensors(config))
    if (std::ranges::any_of(tensor.row->conditions, is_published) && !model_dir.find(tensor.name)) {
      config.has_saved_names = true;
      return;
    }
}

/// Whether the checkpoint has any tensor of lm_head, in whatever form.
bool has_any_of_head(const ModelDir& model_dir, const ModelConfig& config) {
  return std::ranges::any_of(config.architecture->model_tensors, [&](const TensorRow& row) {
    if (row.role != Role::kLmHead) return false;
    const std::string module =
        config.head_prefix + std::string(row.name.substr(0, row.name.rfind('.') + 1));
    return std::ranges::any_of(model_dir.tensor_names(),
                               [&](const std::string& name) { return name.starts_with(module); });
  });
}

bool has_head(const ModelDir& model_dir, const ModelConfig& config) {
  return std::ranges::any_of(config.architecture->model_tensors, [&](const TensorRow& row) {
    return row.role == Role::kLmHead &&
           model_dir.find(config.head_prefix + std::string(row.name)) != nullptr;
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
  if (config.ties_by_file) config.tie_word_embeddings = !has_head(model_dir, config);
  check_index(model_dir, config);
  config.lacks_head = !config.tie_word_embeddings && !has_any_of_head(model_dir, config);
  return config;
}

}  // namespace kvcal
