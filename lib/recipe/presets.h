#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "quant/quant_scheme.h"
#include "recipe/yaml.h"

namespace kvcal {

/// A preset of compressed-tensors that needs no data: scales of its inputs, if any, are dynamic.
struct WeightScheme {
  std::string name;  ///< in capitals
  QuantArgs weights;
  std::optional<QuantArgs> inputs;  ///< nullopt: inputs stay 16-bit
};

/// The preset with this name, in any case. Throws Error, with the names that are known, for one
/// that is unknown or needs data.
WeightScheme weight_scheme(const std::string& name);

/// Scheme of a preset, by name in any case: without targets, and with observers only where the
/// preset names them. path: the name's path, for messages. Throws Error, with the nearest name, for
/// a preset that is unknown or not FP8.
QuantScheme read_preset(const YamlNode& name, const std::string& path);

/// Names of the presets that recipes may have and that quantize anything.
std::vector<std::string> preset_names();

/// Whether a preset, also one that recipes may not have, has this name, in any case.
bool is_preset(std::string_view name);

/// Files of recipes/, which are part of the program.
std::span<const EmbeddedText> builtin_recipes();

/// The recipe of calibrations for which none is named.
inline constexpr std::string_view kDefaultRecipe = "fp8_kv_tensor";
/// The same with scales of K that are chosen by what they do to attention.
inline constexpr std::string_view kAttentionRecipe = "fp8_kv_attention_mse";

/// Text of the recipe that `given` names where no such file is there: a file of recipes/ without
/// its extension ("fp8_kv_tensor"), or a preset of compressed-tensors in any case ("FP8_DYNAMIC"),
/// which makes a recipe for all Linears but lm_head, as in llm-compressor's examples. nullopt where
/// it names neither.
std::optional<std::string> named_recipe(const std::filesystem::path& given);

/// All these names: recipes, then presets that recipes may have.
std::vector<std::string> recipe_names();

/// The recipe that a file in folder names as given: a name where named_recipe has it and folder no
/// such file, else the path from folder.
std::filesystem::path recipe_seen_from(const std::filesystem::path& folder,
                                       const std::string& given);

}  // namespace kvcal
