#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal::test {

inline void expect(bool condition, const char* what) {
  if (!condition) fail("expected: ", what);
}

/// Bytes that name their rank and place.
inline std::vector<std::byte> pattern(int rank, size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(static_cast<size_t>(rank) * 31 + i * 7 + (i >> 8));
  return bytes;
}

/// Bytes that a rank gives: many, few, none.
inline size_t uneven(int rank) {
  constexpr size_t kSizes[] = {1, 0, 300'000, 17};
  return kSizes[static_cast<size_t>(rank) % 4];
}

/// All that a communicator of any kind must do. Collective; throws Error.
inline void check_communicator(Communicator& ranks) {
  const auto all = ranks.all_gather(pattern(ranks.rank(), uneven(ranks.rank())));
  expect(all.size() == static_cast<size_t>(ranks.size()), "an answer of each");
  for (int i = 0; i < ranks.size(); ++i)
    expect(all[static_cast<size_t>(i)] == pattern(i, uneven(i)), "what each rank gave");
  for (int root = 0; root < ranks.size(); ++root)
    expect(ranks.broadcast(pattern(ranks.rank(), 1000), root) == pattern(root, 1000),
           "what the root gave");
  ranks.barrier();

  // Parts in another order than the ranks, with a gap that nobody has.
  std::vector<MemoryPart> parts(static_cast<size_t>(ranks.size()));
  size_t end = 100;
  for (int i = ranks.size() - 1; i >= 0; --i) {
    parts[static_cast<size_t>(i)] = {.begin = end, .size = 1000 + uneven(i)};
    end += parts[static_cast<size_t>(i)].size;
  }
  std::vector<std::byte> memory(end, std::byte{0xee});
  const auto part = [&](int i) {
    return std::span(memory).subspan(parts[static_cast<size_t>(i)].begin,
                                     parts[static_cast<size_t>(i)].size);
  };
  std::ranges::copy(pattern(ranks.rank(), part(ranks.rank()).size()), part(ranks.rank()).begin());
  ranks.exchange(memory, parts);
  for (int i = 0; i < ranks.size(); ++i)
    expect(std::ranges::equal(part(i), pattern(i, part(i).size())), "each rank's part of memory");
  expect(std::ranges::count(std::span(memory).first(100), std::byte{0xee}) == 100,
         "what is nobody's as it was");

  const bool is_odd = ranks.rank() % 2 == 1;
  const auto even = ranks.split(!is_odd);
  expect((even == nullptr) == is_odd, "a communicator for members alone");
  if (!even) return;
  expect(even->size() == (ranks.size() + 1) / 2, "every other rank");
  expect(even->rank() == ranks.rank() / 2, "ranks in the same order");
  const auto gathered = even->all_gather(pattern(ranks.rank(), 10));
  for (int i = 0; i < even->size(); ++i)
    expect(gathered[static_cast<size_t>(i)] == pattern(2 * i, 10), "what members gave");
}

}  // namespace kvcal::test
