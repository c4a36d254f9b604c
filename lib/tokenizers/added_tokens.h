#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/json.h"
#include "tokenizers/components.h"
#include "tokenizers/token_model.h"
#include "tokenizers/token_trie.h"

namespace kvcal::tokenizers {

/// A token beside the model's. Source: `tokenizers`, AddedToken.
struct AddedToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
  bool operator==(const AddedToken&) const = default;
};

/// A part of a text: an added token, or text that the model must split.
struct AddedPart {
  Span span;
  TokenId id = -1;  ///< -1: text
};

/// The added tokens of a tokenizer.json and the search for them. Source: `tokenizers`,
/// added_vocabulary.rs.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Adds tokens in order. As in the library, an id comes from the model's vocabulary when that has
  /// the text and is else the next free one; what the file says does not count. normalizer may be
  /// null.
  AddedTokens(const std::vector<AddedToken>& tokens, const Vocabulary& model,
              const Normalizer* normalizer);

  /// Parts of raw text: tokens that match before normalization, and what is between.
  void split_raw(std::string_view text, Visitor<AddedPart> out) const { split(text, raw_, out); }
  /// The same for normalized text and the tokens that match after normalization.
  void split_normalized(std::string_view text, Visitor<AddedPart> out) const {
    split(text, normalized_, out);
  }

  /// Contents and ids as the file has them.
  std::optional<TokenId> find(std::string_view content) const { return by_content_.find(content); }
  /// The text of an id when it is decoded: the normalized content for tokens that match
  /// normalized text.
  std::optional<std::string_view> text_of(TokenId id) const { return decoded_.text_of(id); }
  bool is_special(std::string_view text) const { return special_.contains(std::string(text)); }
  TokenId max_id() const { return by_content_.max_id(); }

 private:
  void split(std::string_view text, const TokenTrie& trie, Visitor<AddedPart> out) const;

  std::map<TokenId, AddedToken> tokens_;
  Vocabulary by_content_, decoded_;
  std::unordered_set<std::string> special_;
  TokenTrie raw_, normalized_;
};

/// A token with its flags; is_special where it does not say so itself.
AddedToken read_added_token(const Json& entry, bool is_special);
/// Reads "added_tokens". needs_flags: an entry without one of its flags is an error. Throws Error
/// naming the entry.
std::vector<AddedToken> read_added_tokens(const Json& json, bool needs_flags);

}  // namespace kvcal::tokenizers
