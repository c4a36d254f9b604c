#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/quant_args.h"

namespace kvcal {

/// What a recipe asks for, checked: everything here can be done and every engine can load the result.
struct Recipe {
  QuantArgs kv_cache_scheme;          ///< float, 8 bits, symmetric, static; strategy kTensor or kAttnHead
  std::vector<std::string> targets;   ///< as written; what they must match is checked against the model
  std::vector<std::string> ignore;    ///< class names, module names or "re:" patterns (re.match)
  std::string source;                 ///< text of the recipe file, for recipe.yaml and its hash
};

/// Parses a recipe in llm-compressor's YAML (or JSON) form. Every key is known or an error with line and
/// column and "did you mean"; what we understand and do not perform is an error that says so.
Recipe parse_recipe(std::string_view text);

/// parse_recipe of a file, with its path in front of any message.
Recipe read_recipe(const std::filesystem::path& path);

/// Whether name (a module name, "model.layers.0.self_attn") or class_name ("LlamaAttention") is matched by
/// pattern: equal to either, or "re:..." whose regular expression matches from the start (Python re.match).
bool matches_target(std::string_view pattern, std::string_view name, std::string_view class_name);

/// The recipe as it ran, in llm-compressor's saved form (recipe.yaml in the output).
std::string to_yaml(const Recipe& recipe);

}  // namespace kvcal
