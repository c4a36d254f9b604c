#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "family/expected_tensors.h"
#include "quant/quant_scheme.h"
#include "recipe/recipe.h"
#include "stored/read_model_config.h"

namespace kvcal {

/// Modules that the patterns of a recipe can name.
struct NamedModules {
  std::vector<ModuleName> run;  ///< embedding, layers, lm_head, with transformers' names
  std::vector<UnrunModule> unrun;
};

inline bool is_attention(const ModuleName& module) {
  return !module.role;
}

/// Whether a pattern matches the class, name or alias.
bool matches(const std::string& pattern, const ModuleName& module);
bool is_ignored(const Modifier& modifier, const ModuleName& module);

/// Throws Error, naming place and pattern, for a pattern that matches no module, and for a target
/// of a group for weights that matches only attention modules.
void check_patterns(const Recipe& recipe, const NamedModules& modules);

/// "line 3, column 7: target 'Linear'".
std::string target_text(const Modifier& modifier, const std::string& target);

/// Scheme of a module, and the target that chose it.
struct Chosen {
  const Modifier* modifier = nullptr;
  const QuantScheme* scheme = nullptr;  ///< nullptr: not quantized
  std::string target;
  bool by_name = false;
};

/// Targets of one modifier, in order of precedence.
class Targets {
 public:
  explicit Targets(const Modifier& modifier);
  Targets(const Modifier&&) = delete;

  /// The target that decides for a matrix.
  Chosen choose(const ModuleName& module) const;
  /// The target that decides for an attention module: only targets of groups without weights count,
  /// and only those that match no matrix. Source: compressed-tensors `is_narrow_match`.
  Chosen choose_for_attention(const ModuleName& module,
                              const std::vector<ModuleName>& modules) const;

 private:
  using Target =
      std::pair<bool, std::string>;  ///< whether it is a regular expression, and all of it

  template <class IsMeant>
  Chosen first_match(const ModuleName& module, const IsMeant& is_meant) const;

  const Modifier& modifier_;
  std::map<Target, const QuantScheme*> schemes_;
};

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
