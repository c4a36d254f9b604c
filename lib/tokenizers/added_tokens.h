#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/json.h"
#include "tokenizers/components.h"
#include "tokenizers/token_model.h"

namespace kvcal::tokenizers {

/// A token beside the model's. Source: `tokenizers`, AddedToken.
struct AddedToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
  bool operator==(const AddedToken&) const = default;
};

/// Finds the longest of a set of texts wherever one begins.
class TokenTrie {
 public:
  void add(std::string_view text, TokenId id);
  /// Id and end of the longest text that begins at text[at], or -1.
  std::pair<TokenId, size_t> longest(std::string_view text, size_t at) const;
  /// First position from `at` on where a text could begin, by its first byte.
  size_t next_start(std::string_view text, size_t at) const {
    while (at < text.size() && first_[static_cast<unsigned char>(text[at])] < 0) ++at;
    return at;
  }
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    TokenId id = -1;
    std::vector<std::pair<unsigned char, int32_t>> children;
  };
  std::array<int32_t, 256> first_ = [] {
    std::array<int32_t, 256> none{};
    none.fill(-1);
    return none;
  }();
  std::vector<Node> nodes_;
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
  const AddedToken& token_of(TokenId id) const;

  std::vector<std::pair<TokenId, AddedToken>> tokens_;  ///< sorted by id
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
