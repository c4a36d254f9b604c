#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizers/token_model.h"
#include "tokenizers/token_trie.h"

namespace kvcal::tokenizers {

/// BPE's merges: pair of ids → rank and merged id.
class MergeTable {
 public:
  /// A pair that is added again gets the new rank and id.
  void add(TokenId left, TokenId right, uint32_t rank, TokenId merged) {
    merges_[key_of(left, right)] = {rank, merged};
  }

  /// Merges scratch.symbols until no pair is left that may be merged: lowest rank first, the
  /// leftmost among equals. Symbols that went into their predecessor have the id -1 afterwards, or
  /// are gone. merge_short is quadratic and fast for few symbols, merge_long O(n log n).
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  /// Whether a merge joins a token that does not end in U+2581 with one that begins with it.
  bool joins_before_mark() const { return joins_before_mark_; }
  void note_join_before_mark() { joins_before_mark_ = true; }

 private:
  struct Merge {
    uint32_t rank = 0;
    TokenId merged = 0;
  };
  static uint64_t key_of(TokenId left, TokenId right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  const Merge* find(TokenId left, TokenId right) const { return merges_.find(key_of(left, right)); }
  /// Adds the merge of the symbol at position and its successor, if there is one, to candidates.
  void push(Scratch& scratch, int32_t position) const;

  KeyTable<Merge> merges_;
  bool joins_before_mark_ = false;
};

struct BpeOptions {
  std::string unknown, prefix, suffix;
  bool has_unknown = false, fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

/// Byte pair encoding with these tokens and merges.
std::unique_ptr<TokenModel> make_bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges);

}  // namespace kvcal::tokenizers
