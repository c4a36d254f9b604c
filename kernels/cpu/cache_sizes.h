#pragma once

#include <cstdint>

namespace kvcal::cpu {

/// Bytes of this machine's caches; typical values where the system does not tell. Caches that a
/// virtual machine shares with others count in full.
struct CacheSizes {
  int64_t level2 = int64_t{1} << 20;   ///< of a core
  int64_t level3 = int64_t{16} << 20;  ///< of all cores
};
CacheSizes cache_sizes();

/// Tokens of a batch whose activations, bytes_per_token each, stay in the caches of so many
/// threads. A lower limit keeps every thread busy and amortizes the weights; an upper limit saves
/// memory.
int64_t batch_tokens_near(const CacheSizes& caches, int threads, int64_t bytes_per_token);

}  // namespace kvcal::cpu
