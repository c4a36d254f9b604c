#include "stored/find_draft_layer.h"

#include <algorithm>
#include <optional>

#include "family/draft_layer.h"
#include "family/expected_tensors.h"

namespace kvcal {
namespace {

struct Announced {
  std::string_view key;
  int64_t layers = 0;
};

/// Draft layers that config.json, or its text_config, announces; nullopt: it has no such key.
std::optional<Announced> announced_layers(const Json& json) {
  for (const Json* config : {find_field(json, "text_config"), &json})
    for (const std::string_view key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"})
      if (config && config->is_object() && find_field(*config, key))
        return Announced{key, optional_int(*config, key).value_or(0)};
  return std::nullopt;
}

}  // namespace

void find_draft_layer(const ModelDir& model_dir, ModelConfig& config, Diagnostics& diagnostics) {
  if (config.architecture->draft == DraftLayer::kNone || config.has_draft()) return;
  const std::optional<Announced> announced = announced_layers(model_dir.config());
  if (announced ? announced->layers < 1 : config.architecture->draft != DraftLayer::kMtp) return;
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
                     std::string(announced->key) + " " + std::to_string(announced->layers) +
                     ", and " + std::to_string(missing.size()) + " of the " +
                     std::to_string(wanted) + " tensors of its K and V are missing or have " +
                     "another shape, " + missing.front() + " first; the layer gets no scales");
  }
}

}  // namespace kvcal
