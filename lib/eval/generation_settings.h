#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/token.h"
#include "tokenizers/tokenizer.h"

namespace kvcal {

/// Settings of a model folder for generation.
struct GenerationSettings {
  std::set<TokenId> stop_tokens;    ///< as stop_tokens_of
  float repetition_penalty = 1.0f;  ///< as in BatchOptions
  /// Of texts that are sampled, where the caller does not say them; absent: not in the file.
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  /// Keys of generation_config.json that change texts in transformers and are not followed: every
  /// text, and sampled ones alone.
  std::vector<std::string> not_followed, not_followed_sampling;
  std::optional<std::string> bos_token, eos_token;  ///< their texts
};

/// Reads config.json, generation_config.json and the tokenizer's special tokens. Throws Error with
/// the file's name.
GenerationSettings read_generation_settings(const std::filesystem::path& folder);

/// Ids of a text behind what add_bos_token asks for: bos_token, or nothing; absent: what the
/// tokenizer adds on its own. Throws Error where a bos_token is wanted and there is none.
/// Source: lm_eval 0.4.13, models/huggingface.py `tok_encode`, `tok_batch_encode`.
std::vector<TokenId> prompt_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                std::string_view text, std::optional<bool> add_bos_token);

}  // namespace kvcal
