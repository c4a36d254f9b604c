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

bool has_head(const ModelDir& model_dir, const ModelConfig& config) {
  return std::ranges::any_of(config.architecture->model_tensors, [&](const TensorRow& row) {
    return row.role == Role::kLmHead &&
           model_dir.find(config.head_prefix + std::string(row.name)) != nullptr;
  });
}

}  // namespace

ModelConfig read_model_config(const ModelDir& model_dir, const FamilyChoice& family) {
  ModelConfig config = in_context((model_dir.path() / "config.json").string(),
                                  [&] { return parse_model_config(model_dir.config(), family); });
  find_prefix(model_dir, config);
  find_expert_layout(model_dir, config);
  find_saved_names(model_dir, config);
  if (config.ties_by_file) config.tie_word_embeddings = !has_head(model_dir, config);
  return config;
}

}  // namespace kvcal
