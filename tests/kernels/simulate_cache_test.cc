#include <cmath>

#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

TEST_CASE("simulate_cache: every backend gives the reference's bytes") {
  const auto reference = test::make_backend("reference");
  const std::vector<float> scale_of{0.011f, 0.5f, 3.0f};
  for (const CacheFormat format : kCacheFormats)
    for (const int64_t head_dim : {64, 96, 256})
      for (const int64_t tokens : {0, 1, 301}) {
        const int64_t stride = 3 * head_dim + 5;
        std::vector<float> values = test::normal(tokens * stride, 9);
        for (size_t i = 0; i < values.size(); i += 7)
          values[i] = std::ldexp(values[i], static_cast<int>(i % 23) - 11);
        const auto run = [&](Backend& backend) {
          const test::OnBackend<float> x(backend, values), scales(backend, scale_of);
          backend.simulate_cache({.x = {.data = x.data(),
                                        .tokens = tokens,
                                        .heads = 3,
                                        .head_dim = head_dim,
                                        .row_stride = stride},
                                  .format = format,
                                  .scales = scales.data()});
          return x.values();
        };
        const std::vector<float> expected = run(*reference);
        for (size_t i = static_cast<size_t>(stride) - 5; tokens > 0 && i < size_t(stride); ++i)
          CHECK(bits_of(expected[i]) == bits_of(values[i]));  // behind the heads
        test::for_each_backend([&](Backend& backend) {
          INFO(name_of(format) << ", head_dim " << head_dim << ", " << tokens << " tokens");
          CHECK(test::same_bytes(run(backend), expected));
        });
      }
}

}  // namespace
}  // namespace kvcal
