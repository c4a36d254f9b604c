#include "kernels/cpu/cache_sizes.h"

#include <unistd.h>

#include <algorithm>

namespace kvcal::cpu {
namespace {

/// Rows that occupy one thread in every operation of a small model.
constexpr int64_t kTokensOfThread = 512;
/// Rows that amortize one read of a large layer's weights.
constexpr int64_t kTokensOfWeights = 2048;

}  // namespace

CacheSizes cache_sizes() {
  CacheSizes sizes;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  if (const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) sizes.level2 = bytes;
  if (const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) sizes.level3 = bytes;
#endif
  return sizes;
}

int64_t batch_tokens_near(const CacheSizes& caches, int threads, int64_t bytes_per_token) {
  const int64_t most = kTokensOfThread * threads, least = std::min(most, kTokensOfWeights);
  const int64_t near =
      (caches.level2 * threads + caches.level3 / 2) / std::max<int64_t>(1, bytes_per_token);
  return std::clamp(near, least, most);
}

}  // namespace kvcal::cpu
