#pragma once

#include <memory>
#include <string_view>

#include "core/json.h"
#include "tokenizers/token_model.h"
#include "tokenizers/tokenizer.h"

namespace kvcal::tokenizers {

/// The tokenizer that the content of a tokenizer.json describes. Throws Error naming the place in
/// the file; a type that is not known, or a random step (dropout), is an error.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text);

/// A model with the other parts of a tokenizer.json around it.
std::unique_ptr<Tokenizer> assemble_tokenizer(const Json& parts, std::unique_ptr<TokenModel> model);

/// The files of a sentencepiece tokenizer, as bytes; those that are not there are empty.
struct SentencePieceFiles {
  std::string_view model;  ///< tokenizer.model
  std::string_view
      config;  ///< tokenizer_config.json: bos and eos, tokens to recognise in the text, legacy
  std::string_view added;  ///< added_tokens.json: token → id
};
std::unique_ptr<Tokenizer> read_sentencepiece(const SentencePieceFiles& files);

/// Whether the content of a tokenizer.model is a list of tiktoken ranks ("base64 rank" lines).
bool is_rank_list(std::string_view model);

/// The files of a byte-level BPE without tokenizer.json, as text; those that are not there are
/// empty.
struct VocabularyFiles {
  std::string_view vocab;           ///< vocab.json: token → id
  std::string_view merges;          ///< merges.txt: "left right", a merge a line
  std::string_view config;          ///< tokenizer_config.json: class, tokens, add_prefix_space
  std::string_view added;           ///< added_tokens.json: token → id
  std::string_view special_tokens;  ///< special_tokens_map.json
  std::string_view model_config;    ///< config.json: its model_type where no class is named
};
/// These files do not say how text is split: the class of the tokenizer does. Throws Error for a
/// class that we do not know, and for added tokens whose ids leave gaps. Source: transformers,
/// GPT2Tokenizer and Qwen2Tokenizer.
std::unique_ptr<Tokenizer> read_vocab_and_merges(const VocabularyFiles& files);

/// The tokenizer that Mistral's tekken.json describes; its special tokens are recognised in text.
/// Source: mistral-common, Tekkenizer; transformers, MistralConverter.
std::unique_ptr<Tokenizer> read_tekken(std::string_view text);

}  // namespace kvcal::tokenizers
