#pragma once

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

namespace kvcal {

/// Puts all items in a random order. Same state of random, same order on every machine:
/// std::shuffle may differ between libraries.
template <class Item>
void shuffle(std::vector<Item>& items, std::mt19937_64& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

}  // namespace kvcal
