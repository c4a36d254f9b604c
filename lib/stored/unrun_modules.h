#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/model_config.h"

namespace kvcal {

/// A module whose tensors a checkpoint holds and the model does not run: of a vision tower, or of a
/// layer behind the last that predicts further. Engines may run it.
struct UnrunModule {
  std::string name;        ///< "vision_tower.vision_model.encoder.layers.0.mlp.fc1"
  std::string class_name;  ///< "Linear" or "Embedding", told by its name, where it has a matrix
};

/// All of them, in the order of the checkpoint's names.
std::vector<UnrunModule> unrun_modules(const ModelDir& model_dir, const ModelConfig& config);

}  // namespace kvcal
