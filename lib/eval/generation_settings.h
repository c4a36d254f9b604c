#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/token.h"

namespace kvcal {

/// Settings of a model folder for generation.
struct GenerationSettings {
  std::set<TokenId> stop_tokens;    ///< as stop_tokens_of
  float repetition_penalty = 1.0f;  ///< as in BatchOptions
  /// Keys of generation_config.json that change greedy texts in transformers and are not followed.
  std::vector<std::string> not_followed;
  std::optional<std::string> bos_token, eos_token;  ///< their texts
};

/// Reads config.json, generation_config.json and the tokenizer's special tokens. Throws Error with
/// the file's name.
GenerationSettings read_generation_settings(const std::filesystem::path& folder);

}  // namespace kvcal
