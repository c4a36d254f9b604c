#include "tokenizers/vocabulary.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace kvcal::tokenizers {

uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  uint64_t hash = text.size() * kMultiplier;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, at, left);
    hash = (hash ^ word) * kMultiplier;
  }
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93u;
  return hash ^ (hash >> 32);
}

void Vocabulary::reserve(size_t count, size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(count);
  by_id_.reserve(count);
  size_t slots = slots_.size();
  while (slots < count * 2) slots *= 2;
  grow(slots);
}

size_t Vocabulary::slot_of(std::string_view wanted, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] != 0) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && text(entry) == wanted) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::grow(size_t slots) {
  slots_.assign(slots, 0);
  for (size_t i = 0; i < entries_.size(); ++i)
    slots_[slot_of(text(entries_[i]), entries_[i].hash)] = static_cast<uint32_t>(i + 1);
}

void Vocabulary::add(std::string_view added, TokenId id) {
  const uint64_t hash = hash_bytes(added);
  size_t slot = slot_of(added, hash);
  if (slots_[slot] == 0) {
    if (added.size() > UINT32_MAX || entries_.size() > UINT32_MAX / 4)
      fail("vocabulary is too large");
    entries_.push_back({hash, bytes_.size(), static_cast<uint32_t>(added.size()), id});
    bytes_ += added;
    slots_[slot] = static_cast<uint32_t>(entries_.size());
    if (entries_.size() * 2 > slots_.size()) grow(slots_.size() * 2);
    slot = slot_of(added, hash);
  }
  const uint32_t index = slots_[slot] - 1;
  entries_[index].id = id;
  by_id_[id] = index;
  max_id_ = std::max(max_id_, id);
  longest_ = std::max(longest_, added.size());
}

std::optional<TokenId> Vocabulary::find(std::string_view wanted) const {
  const uint32_t index = slots_[slot_of(wanted, hash_bytes(wanted))];
  if (index == 0) return std::nullopt;
  return entries_[index - 1].id;
}

std::optional<std::string_view> Vocabulary::text_of(TokenId id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return text(entries_[found->second]);
}

}  // namespace kvcal::tokenizers
