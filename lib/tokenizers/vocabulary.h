#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/tokenizer.h"

namespace kvcal::tokenizers {

/// A fast hash for short strings; the same on every machine.
uint64_t hash_bytes(std::string_view text);

/// Tokens by text and by id. A text has one id (the last one given wins), an id one text.
class Vocabulary {
 public:
  void reserve(size_t count, size_t bytes);
  void add(std::string_view added, TokenId id);

  std::optional<TokenId> find(std::string_view wanted) const;
  std::optional<std::string_view> text_of(TokenId id) const;
  /// Number of different texts.
  size_t size() const { return entries_.size(); }
  /// Largest id, -1 when empty.
  TokenId max_id() const { return max_id_; }
  /// Bytes of the longest text.
  size_t longest() const { return longest_; }

 private:
  struct Entry {
    uint64_t hash;
    size_t offset;
    uint32_t size;
    TokenId id;
  };
  std::string_view text(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.size);
  }
  /// Index into slots_ where text is or belongs.
  size_t slot_of(std::string_view wanted, uint64_t hash) const;
  void grow(size_t slots);

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_ =
      std::vector<uint32_t>(16, 0);  ///< entry + 1; a power of two, half empty
  std::unordered_map<TokenId, uint32_t> by_id_;
  TokenId max_id_ = -1;
  size_t longest_ = 0;
};

}  // namespace kvcal::tokenizers
