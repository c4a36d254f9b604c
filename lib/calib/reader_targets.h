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
  std::optional<size_t> group;  ///< whose scheme its tensors have; none: 16 bits
  bool is_ignored = false;      ///< stands in config.json's ignore by its name
  bool is_head = false;         ///< makes the logits
};

/// The targets by which every reader finds for each module the group that it has, for each group:
/// as written where that does, else with the names of the modules that some reader takes otherwise,
/// else names alone. Readers differ in which of several targets counts, in what they call Linears
/// that they run as one, and in whether an lm_head is a Linear. Source: compressed-tensors
/// `match_targets` (transformers); vLLM 0.32 `find_matched_target`.
std::vector<std::vector<std::string>> readable_targets(const std::vector<QuantScheme>& groups,
                                                       const std::vector<ReadModule>& modules);

}  // namespace kvcal
