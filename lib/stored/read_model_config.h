#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "family/architecture.h"
#include "family/model_config.h"

namespace kvcal {

/// Reads a checkpoint's config.json, and finds the prefixes of its tensors. Throws Error as
/// parse_model_config does, with the file's path in front, and for an index that names tensors that
/// run and are not there.
ModelConfig read_model_config(const ModelDir& model_dir, const FamilyChoice& family = {});

/// Adds the draft layer (family/draft_layer.h) where the checkpoint has one: config.json announces
/// it, with num_nextn_predict_layers or mtp_num_hidden_layers, and the tensors are there. Without
/// either key, a checkpoint with tensors below "mtp." has one, as in vLLM 0.32. Warns of a layer
/// that is announced and incomplete, which published quantized or cut checkpoints have. A config
/// that has the layer stays as it is.
void find_draft_layer(const ModelDir& model_dir, ModelConfig& config, Diagnostics& diagnostics);

/// A module whose tensors a checkpoint holds and the model does not run: part of a vision tower, or
/// of a multi-token prediction layer after the last layer. Engines may run it.
struct UnrunModule {
  std::string name;        ///< "vision_tower.vision_model.encoder.layers.0.mlp.fc1"
  std::string class_name;  ///< "Linear" or "Embedding", guessed from its name
};

/// All such modules, in the order of their names in the checkpoint.
std::vector<UnrunModule> unrun_modules(const ModelDir& model_dir, const ModelConfig& config);

}  // namespace kvcal
