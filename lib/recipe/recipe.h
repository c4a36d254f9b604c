#pragma once

#include "quant/module_target.h"
#include "quant/quant_scheme.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcal {

/// A place in a recipe; lines and columns count from 1.
struct RecipePlace {
  int line = 0, column = 0;
};
/// "line 3, column 7: "
std::string text_of(const RecipePlace& place);

/// One QuantizationModifier, as written and as resolved.
struct Modifier {
  std::string stage = "default";  ///< names of stage and group, without "_stage" and "_modifiers"
  std::string group = "default";
  RecipePlace place;  ///< of its name
  /// Places of the patterns of all groups, and of those in ignore. The place of a default pattern
  /// is that of the key that needs it.
  std::map<std::string, RecipePlace, std::less<>> target_places, ignore_places;
  RecipePlace kv_place;  ///< of kv_cache_scheme, if any
  /// As written, else empty: the targets of a scheme given by name.
  std::vector<std::string> targets;
  std::vector<std::string> ignore;  ///< class names, module names or "re:" patterns (re.match)
  /// A preset's name, or presets with their targets, as written; at most one of the two.
  std::optional<std::string> scheme;
  std::vector<std::pair<std::string, std::vector<std::string>>> scheme_map;
  /// Config groups in order, also those of a scheme, with presets resolved, observers named and
  /// overrides applied. Empty: the modifier does not quantize Linears.
  std::vector<std::pair<std::string, QuantScheme>> config_groups;
  bool has_config_groups = false;  ///< given as config_groups, not as a scheme
  /// 8 bits, symmetric, static; strategy (kTensor or kAttnHead, of type int also kChannel) and
  /// observer always named.
  std::optional<QuantArgs> kv_cache_scheme;
  /// As written; config_groups already include them.
  std::optional<std::string> weight_observer, input_observer, output_observer;
  std::map<std::string, std::string> observer;
  bool bypass_divisibility_checks = false;
};

/// A checked recipe: kvcal can run it, and an engine can load the result.
struct Recipe {
  std::vector<Modifier> modifiers;  ///< in the order of the file; at least one
  std::string source;               ///< text of the recipe file, for its hash
};

/// Whether the modifier has scales from calibration: of a KV cache, of attention, or of static
/// inputs.
bool needs_data(const Modifier& modifier);
/// Whether scales of K follow from what attention does with them, which statistics do not hold.
bool chooses_by_attention(const Recipe& recipe);

/// Parses a recipe in llm-compressor's YAML (or JSON) form. Throws Error with line, column and "did
/// you mean" for an unknown key, and an Error of its own for a key that kvcal knows and does not
/// support. A key that llm-compressor would accept and ignore is an error too.
Recipe parse_recipe(std::string_view text);

/// parse_recipe of a file, or of a name where no such file is there (recipe/presets.h);
/// messages begin with its path. .json must be JSON, .md (Markdown) has the recipe as its front
/// matter, anything else is YAML.
Recipe read_recipe(const std::filesystem::path& path);

struct YamlNode;
/// Reads the document: stages, groups of modifiers, modifiers, their fields. Throws Error with line
/// and column for everything that kvcal does not know, does not support, or that would have no
/// effect.
Recipe read_recipe_tree(const YamlNode& document);

/// The recipe as it ran, with defaults written out, in llm-compressor's saved form (recipe.yaml in
/// the output), which llm-compressor can read: one stage, with the name of the last, and all
/// modifiers in order. A repeated group name gets a number. Needs at least one modifier. Source:
/// llm-compressor `Recipe.yaml`.
std::string to_yaml(const Recipe& recipe);

}  // namespace kvcal
