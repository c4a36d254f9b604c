#include "tokenizers/bpe.h"

#include <algorithm>
#include <limits>

namespace kvcal::tokenizers {
namespace {

uint64_t key_of(TokenId left, TokenId right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

/// For a heap whose front is the lowest rank, the leftmost among equals.
bool comes_later(const Scratch::Candidate& a, const Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

MergeTable::MergeTable(size_t count) {
  size_t slots = 16;
  while (slots < count * 2) slots *= 2;
  slots_.resize(slots);
}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = ((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::add(std::pair<TokenId, TokenId> pair, uint32_t rank, TokenId merged) {
  const uint64_t key = key_of(pair.first, pair.second);
  slots_[slot_of(key)] = {key, rank, merged};
}

const MergeTable::Slot* MergeTable::find(TokenId left, TokenId right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kFree ? nullptr : &slot;
}

void MergeTable::merge_short(Scratch& scratch) const {
  constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  auto& symbols = scratch.symbols;
  auto& pairs = scratch.candidates;  // pairs[i]: symbols i and i + 1
  const auto look_up = [&](size_t i) {
    const Slot* slot = find(symbols[i].id, symbols[i + 1].id);
    pairs[i] =
        slot ? Scratch::Candidate{slot->rank, 0, slot->merged} : Scratch::Candidate{kNever, 0, 0};
  };
  if (symbols.size() < 2) return;
  pairs.resize(symbols.size() - 1);
  for (size_t i = 0; i < pairs.size(); ++i) look_up(i);
  while (!pairs.empty()) {
    const auto best = std::min_element(
        pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == kNever) break;
    const auto i = static_cast<size_t>(best - pairs.begin());
    symbols[i].id = best->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    pairs.erase(best);
    if (i < pairs.size()) look_up(i);
    if (i > 0) look_up(i - 1);
  }
}

void MergeTable::push(Scratch& scratch, int32_t position) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const Slot* slot = find(left.id, scratch.symbols[static_cast<size_t>(left.next)].id);
  if (!slot) return;
  scratch.candidates.push_back({slot->rank, position, slot->merged});
}

void MergeTable::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.candidates;
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) push(scratch, i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  const auto push_heap = [&](int32_t position) {
    const size_t before = heap.size();
    push(scratch, position);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id < 0 || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // Since it was pushed, one of the two may have been merged with another symbol.
    const Slot* slot = find(left.id, right.id);
    if (!slot || slot->merged != best.merged) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous >= 0) push_heap(left.previous);
    push_heap(best.position);
  }
}

}  // namespace kvcal::tokenizers
