#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/number.h"

namespace kvcal {

/// Text to ids and back. Ids are those of the file itself (tokenizer.json: the `tokenizers`
/// library; tokenizer.model: sentencepiece), never a class's reinterpretation of it. Thread-safe
/// after construction.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of text. Special tokens written in the text are recognised; add_special_tokens also runs
  /// the post-processor (or adds bos/eos for tokenizer.model as tokenizer_config.json says).
  /// Invalid UTF-8 is replaced by U+FFFD as `tokenizers`' Python callers do with errors="replace".
  virtual std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const = 0;
  /// Text of ids. skip_special_tokens drops tokens marked special.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;
  /// Largest id + 1.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string> id_to_token(TokenId id) const = 0;
};

/// The tokenizer of a model folder: tokenizer.json, else tokenizer.model, else vocab.json with
/// merges.txt, else tekken.json. Throws Error naming the folder and what was looked for, or the
/// file and what is wrong in it.
std::unique_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& folder);

}  // namespace kvcal
