#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/checkpoint_report.h"
#include "stored/weights.h"

namespace kvcal {

/// One tensor of a checkpoint and its use in the forward pass.
struct ListedTensor {
  std::string name;
  std::string_view role;   ///< "query_bias"; "none" where nothing reads it
  std::string_view group;  ///< of roles: "attention", "norms", "KV scales", "not read", ...
  const TensorView* tensor = nullptr;  ///< the ModelDir's
};

/// All tensors, by name.
std::vector<ListedTensor> list_tensors(const ModelDir& model_dir, const ModelConfig& config);

/// Count and bytes of each group, in the order the groups first appear.
std::vector<report::TensorKind> group_sizes(const std::vector<ListedTensor>& tensors);

}  // namespace kvcal
