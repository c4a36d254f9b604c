#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quant/quant_scheme.h"

namespace kvcal {

/// A module of the checkpoint as readers of its config.json see it.
struct ReadModule {
  std::string name;
  std::string class_name;       ///< "Linear", "Embedding", "Conv1D"
  std::optional<size_t> group;  ///< group of its scheme; nullopt: 16-bit
  bool is_ignored = false;      ///< config.json's ignore holds its name
  bool is_head = false;         ///< makes the logits
};

/// Targets of each group with which every reader finds the right group for each module: the targets
/// as written where they do; else with the names of the modules that some reader would assign
/// otherwise; else only names. Readers differ in which of several matching targets counts, in the
/// names of fused Linears, and in whether an lm_head is a Linear. Source: compressed-tensors
/// `match_targets` (transformers); vLLM 0.32 `find_matched_target`.
std::vector<std::vector<std::string>> readable_targets(const std::vector<QuantScheme>& groups,
                                                       const std::vector<ReadModule>& modules);

}  // namespace kvcal
