#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/number.h"

namespace kvcal {

/// Tokens that some sequences have in common, and what follows them. The parts of a tree hold each
/// token of each sequence once, so what sequences share is run once.
struct SharedPart {
  size_t first = 0, last = 0;  ///< the sequences [first, last) that have the tokens
  size_t begin = 0, end = 0;   ///< tokens, from the sequences' beginning
  std::vector<SharedPart> next = {};

  size_t size() const { return end - begin; }
  /// Parts one behind the other below this one, at most.
  int64_t height() const;
};

/// Fewer tokens are not worth a copy of their K and V.
constexpr size_t kLeastShared = 8;

/// Parts of distinct sequences, which are in lexicographic order; no two of them begin at the same
/// token with the same sequence. most_height: of each part. A part has two tokens or more, unless
/// it is a whole sequence of one: a single token would be a step of decoding, whose last bits may
/// be others.
std::vector<SharedPart> shared_parts(std::span<const std::span<const TokenId>> sequences,
                                     int64_t most_height);

}  // namespace kvcal
