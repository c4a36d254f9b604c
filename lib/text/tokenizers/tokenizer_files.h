#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "text/tokenizer.h"

namespace kvcal::tokenizers {

/// The tokenizer that the content of a tokenizer.json describes. Throws Error naming the place in
/// the file; a type that is not known, or a random step (dropout), is an error.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text);

/// The files of a sentencepiece tokenizer, as bytes; those that are not there are empty.
struct SentencePieceFiles {
  std::string_view model;  ///< tokenizer.model
  std::string_view
      config;  ///< tokenizer_config.json: bos and eos, tokens to recognise in the text, legacy
  std::string_view added;  ///< added_tokens.json: token → id
};
std::unique_ptr<Tokenizer> read_sentencepiece(const SentencePieceFiles& files);

}  // namespace kvcal::tokenizers
