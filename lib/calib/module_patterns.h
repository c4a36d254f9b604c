#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "family/modules.h"
#include "recipe/recipe.h"
#include "stored/unrun_modules.h"

namespace kvcal {

/// The modules that the patterns of a recipe can name.
struct NamedModules {
  std::vector<ModuleName> run;  ///< embedding, layers, lm_head: as transformers names them
  std::vector<UnrunModule> unrun;
};

inline bool is_attention(const ModuleName& module) {
  return !module.role;
}

/// By class, name or alias.
bool matches(const std::string& pattern, const ModuleName& module);
bool is_ignored(const Modifier& modifier, const ModuleName& module);

/// Throws Error, naming place and pattern, for one that matches no module, and for a target that
/// matches attention modules alone and is of a group for weights.
void check_patterns(const Recipe& recipe, const NamedModules& modules);

/// "line 3, column 7: target 'Linear'".
std::string target_text(const Modifier& modifier, const std::string& target);

/// The modifier of a module, and the target that chose it.
struct Chosen {
  const Modifier* modifier = nullptr;
  const QuantScheme* scheme = nullptr;  ///< nullptr: nothing
  std::string target;
  bool by_name = false;
};

/// One modifier's targets in the order they are tried.
class Targets {
 public:
  explicit Targets(const Modifier& modifier);
  Targets(const Modifier&&) = delete;

  /// For a matrix: the target that decides.
  Chosen choose(const ModuleName& module) const;
  /// For an attention module: the same among the targets of groups without weights that match no
  /// matrix of modules. Source: compressed-tensors `is_narrow_match`.
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

}  // namespace kvcal
