#pragma once

#include <cstdint>

namespace kvcal::cpu {

/// Bytes of this machine's caches; typical ones where the system does not tell. What a virtual
/// machine shares with others counts in full.
struct CacheSizes {
  int64_t level2 = int64_t{1} << 20;   ///< of a core
  int64_t level3 = int64_t{16} << 20;  ///< of all cores
};
CacheSizes cache_sizes();

/// Tokens of a batch whose activations, bytes_per_token each, stay in the caches of so many
/// threads; not so few that threads run out of work or weights are read for too few rows, not so
/// many that memory is taken for nothing.
int64_t batch_tokens_near(const CacheSizes& caches, int threads, int64_t bytes_per_token);

}  // namespace kvcal::cpu
