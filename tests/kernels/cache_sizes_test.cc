#include "kernels/cpu/cpu_backend.h"

#include "support/catch.h"

using namespace kvcal::cpu;

TEST_CASE("cache_sizes: something that can be divided by") {
  CHECK(cache_sizes().level2 > 0);
  CHECK(cache_sizes().level3 > 0);
}

TEST_CASE("batch_tokens_near: few threads take what keeps them busy, many what the caches hold") {
  const CacheSizes caches{.level2 = int64_t{2} << 20, .level3 = int64_t{64} << 20};
  CHECK(batch_tokens_near(caches, 1, 20'000) == 512);
  CHECK(batch_tokens_near(caches, 2, 20'000) == 1024);
  CHECK(batch_tokens_near(caches, 2, 2'000'000) == 1024);
  // (2 * 64 + 32) MiB over 20 kB and over 250 kB.
  CHECK(batch_tokens_near(caches, 64, 20'000) == 8388);
  CHECK(batch_tokens_near(caches, 64, 250'000) == 2048);
  CHECK(batch_tokens_near(caches, 64, 1) == 64 * 512);
  CHECK(batch_tokens_near(caches, 64, 0) == 64 * 512);
}
