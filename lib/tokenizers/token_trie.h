#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/number.h"

namespace kvcal::tokenizers {

/// A hash table of keys of 64 bits, any but the largest: a power of two of slots, half of them
/// free.
template <class Value>
class KeyTable {
 public:
  /// The value of a key, or null.
  const Value* find(uint64_t key) const {
    const Slot& slot = slots_[slot_of(key)];
    return slot.key == kFree ? nullptr : &slot.value;
  }
  /// The value of a key, which is added where it is absent. Valid until the next one is added.
  Value& operator[](uint64_t key) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[slot_of(key)];
    if (slot.key == kFree) ++size_;
    slot.key = key;
    return slot.value;
  }
  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Value value;
  };
  size_t slot_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = ((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
    while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
    return slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.key != kFree) slots_[slot_of(slot.key)] = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  size_t size_ = 0;
};

/// A set of texts with their ids, byte by byte: (node, byte) → node.
class TokenTrie {
 public:
  /// A text that is added again keeps its id; an empty one is not added.
  void add(std::string_view text, TokenId id) {
    if (text.empty()) return;
    starts_[static_cast<unsigned char>(text[0])] = true;
    Node* node = nullptr;
    for (const char byte : text) {
      node = &nodes_[key_of(node ? node->number : 0, byte)];
      if (node->number == 0) node->number = static_cast<uint32_t>(nodes_.size());
    }
    if (node->id < 0) node->id = id;
  }

  /// Calls found(length, id) for every one that text begins with, the shortest first.
  template <class Found>
  void prefixes(std::string_view text, Found found) const {
    uint32_t number = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const Node* node = nodes_.find(key_of(number, text[i]));
      if (!node) return;
      if (node->id >= 0) found(i + 1, node->id);
      number = node->number;
    }
  }
  /// Id and end of the longest one that begins at text[at], or -1.
  std::pair<TokenId, size_t> longest(std::string_view text, size_t at) const {
    std::pair<TokenId, size_t> best{-1, at};
    prefixes(text.substr(at), [&](size_t length, TokenId id) { best = {id, at + length}; });
    return best;
  }
  /// First position from `at` on where one could begin, by its first byte.
  size_t next_start(std::string_view text, size_t at) const {
    while (at < text.size() && !starts_[static_cast<unsigned char>(text[at])]) ++at;
    return at;
  }
  bool empty() const { return nodes_.size() == 0; }

 private:
  struct Node {
    uint32_t number = 0;  ///< from 1 on; 0 is the root
    TokenId id = -1;
  };
  static uint64_t key_of(uint32_t number, char byte) {
    return uint64_t{number} << 8 | static_cast<unsigned char>(byte);
  }

  std::array<bool, 256> starts_{};
  KeyTable<Node> nodes_;
};

}  // namespace kvcal::tokenizers
