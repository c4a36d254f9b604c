#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/model_config.h"

namespace kvcal {

/// A module whose tensors a checkpoint holds and the model does not run: part of a vision tower, or
/// of a multi-token prediction layer after the last layer. Engines may run it.
struct UnrunModule {
  std::string name;        ///< "vision_tower.vision_model.encoder.layers.0.mlp.fc1"
  std::string class_name;  ///< "Linear" or "Embedding", guessed from its name
};

/// All such modules, in the order of their names in the checkpoint.
std::vector<UnrunModule> unrun_modules(const ModelDir& model_dir, const ModelConfig& config);

}  // namespace kvcal
