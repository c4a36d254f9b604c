#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "stored/weights.h"

namespace kvcal {

/// One tensor of a checkpoint and what the forward pass takes it for.
struct ListedTensor {
  std::string name, role, kind;
  const TensorView* tensor = nullptr;  ///< the ModelDir's
};

/// All tensors, by name. The kind groups roles: "attention", "norms", "KV scales", "not read", ...
std::vector<ListedTensor> list_tensors(const ModelDir& model_dir, const ModelConfig& config);

/// Count and bytes of each kind, in the order the kinds first appear.
Json tensor_kinds(const std::vector<ListedTensor>& tensors);

}  // namespace kvcal
