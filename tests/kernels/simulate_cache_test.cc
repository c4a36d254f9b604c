#include <cmath>
#include <iterator>
#include <set>
#include <vector>

#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr int64_t kHeads = 3;

struct Case {
  CacheFormat format = {};
  int64_t head_dim = 0, tokens = 0;
  bool is_value = false;

  int64_t stride() const { return kHeads * head_dim + 5; }
};

/// All that a format takes.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const CacheFormat format : kCacheFormats)
    for (const int64_t head_dim : {64, 96, 256, 512})
      for (const bool is_value : {false, true})
        for (const int64_t tokens : {0, 1, 301})
          if (takes_head(layout_of(format), head_dim, is_value))
            all.push_back({format, head_dim, tokens, is_value});
  return all;
}

std::vector<float> run(const Case& one, const std::vector<float>& values, Backend& backend) {
  const test::OnBackend<float> x(backend, values), scales(backend, {0.011f, 0.5f, 3.0f});
  backend.simulate_cache({.x = {.data = x.data(),
                                .tokens = one.tokens,
                                .heads = kHeads,
                                .head_dim = one.head_dim,
                                .row_stride = one.stride()},
                          .format = one.format,
                          .scales = scales.data(),
                          .is_value = one.is_value,
                          .rotated = one.head_dim / 2});
  return x.values();
}

TEST_CASE("simulate_cache: every backend gives the reference's bytes") {
  const auto reference = test::make_backend("reference");
  std::set<CacheFormat> seen;
  for (const Case& one : cases()) {
    seen.insert(one.format);
    std::vector<float> values = test::normal(one.tokens * one.stride(), 9);
    for (size_t i = 0; i < values.size(); i += 7)
      values[i] = std::ldexp(values[i], static_cast<int>(i % 23) - 11);
    const std::vector<float> expected = run(one, values, *reference);
    const auto stride = static_cast<size_t>(one.stride());
    for (size_t i = stride - 5; one.tokens > 0 && i < stride; ++i)
      CHECK(bits_of(expected[i]) == bits_of(values[i]));  // behind the heads
    test::for_each_backend([&](Backend& backend) {
      INFO(name_of(one.format) << ", head_dim " << one.head_dim << ", " << one.tokens << " tokens"
                               << (one.is_value ? ", V" : ", K"));
      CHECK(test::same_bytes(run(one, values, backend), expected));
    });
  }
  CHECK(seen.size() == std::size(kCacheFormats));
}

}  // namespace
}  // namespace kvcal
