#pragma once

#include "quant/quant_args.h"
#include "quant/quant_scheme.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcal {

/// A place in a recipe, counted from 1.
struct RecipePlace {
  int line = 0, column = 0;
};
/// "line 3, column 7: "
std::string text_of(const RecipePlace& place);

/// One QuantizationModifier, as written and as it is meant.
struct Modifier {
  std::string stage = "default";  ///< names of stage and group, without "_stage" and "_modifiers"
  std::string group = "default";
  RecipePlace place;  ///< of its name
  /// Places of the patterns of all groups, and of those in ignore; for a default pattern, the place
  /// of what it is the default for.
  std::map<std::string, RecipePlace, std::less<>> target_places, ignore_places;
  RecipePlace kv_place;  ///< of kv_cache_scheme, where there is one
  /// As written, empty where not: what a scheme named by one word is for.
  std::vector<std::string> targets;
  std::vector<std::string> ignore;  ///< class names, module names or "re:" patterns (re.match)
  /// As written: a preset's name, or presets with their targets; at most one of both.
  std::optional<std::string> scheme;
  std::vector<std::pair<std::string, std::vector<std::string>>> scheme_map;
  /// Config groups in order, with presets looked up, observers named and overrides applied; also
  /// those that a scheme stands for. Empty: the modifier asks nothing of Linears.
  std::vector<std::pair<std::string, QuantScheme>> config_groups;
  bool has_config_groups = false;  ///< written as such, not as a scheme
  /// float, 8 bits, symmetric, static; strategy (kTensor or kAttnHead) and observer always named.
  std::optional<QuantArgs> kv_cache_scheme;
  /// As written; config_groups have them applied.
  std::optional<std::string> weight_observer, input_observer, output_observer;
  std::map<std::string, std::string> observer;
  bool bypass_divisibility_checks = false;
};

/// A checked recipe: everything here can be done, and an engine can load the result.
struct Recipe {
  std::vector<Modifier> modifiers;  ///< in the order of the file; at least one
  std::string source;               ///< text of the recipe file, for its hash
};

/// Whether the modifier's scales come from calibration: those of a KV cache, of attention, of
/// static inputs.
bool needs_data(const Modifier& modifier);

/// Parses a recipe in llm-compressor's YAML (or JSON) form. Every key is known or an error with
/// line and column and "did you mean"; what we understand and do not perform is an error that says
/// so. What llm-compressor would take and then ignore is an error too.
Recipe parse_recipe(std::string_view text);

/// parse_recipe of a file, with its path in front of any message: .json must be JSON, .md
/// (Markdown) has the recipe as its front matter, anything else is YAML.
Recipe read_recipe(const std::filesystem::path& path);

/// Whether name (a module name, "model.layers.0.self_attn") or class_name ("LlamaAttention") is
/// matched by pattern: equal to either, or "re:..." whose regular expression matches name from its
/// start, not necessarily to its end (Python re.match). Throws Error for a pattern that is no
/// regular expression or takes too many steps. Source: compressed-tensors `match_name` and
/// `_match_class`, which knows the parents of a class too.
bool matches_target(std::string_view pattern, std::string_view name, std::string_view class_name);

/// The recipe as it ran, defaults written out, in llm-compressor's saved form (recipe.yaml in the
/// output): one stage, named as the last, with all modifiers in their order; llm-compressor reads
/// it back. Modifiers whose group has a name that came before get a number behind it. At least one
/// modifier. Source: llm-compressor `Recipe.yaml`.
std::string to_yaml(const Recipe& recipe);

}  // namespace kvcal
