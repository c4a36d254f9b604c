#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/embedded_text.h"

namespace kvcal {

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
