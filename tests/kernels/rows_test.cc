#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

/// How heads lie: data[first + t * stride + h * head_dim].
struct Layout {
  int64_t heads = 0, head_dim = 0, extra_stride = 0, first = 0;
  int64_t stride() const { return heads * head_dim + extra_stride; }
  int64_t size(int64_t tokens) const { return first + tokens * stride(); }
  HeadsView view(float* data, int64_t tokens) const {
    return {.data = data + first,
            .tokens = tokens,
            .heads = heads,
            .head_dim = head_dim,
            .row_stride = stride()};
  }
};

TEST_CASE("copy_heads: every backend copies the width and leaves the rest alone") {
  struct Case {
    Layout x, out;
    int64_t width = 0;
  };
  for (const Case& c : {Case{{4, 16}, {4, 16}, 16}, Case{{3, 24, 5}, {3, 40, 7}, 20},
                        Case{{1, 8, 32, 32}, {6, 24, 0, 16}, 8},  // one head to all, to its place
                        Case{{2, 21, 0, 7}, {2, 7}, 7},           // the second of three parts
                        Case{{2, 8}, {2, 8}, 0}})
    for (const int64_t tokens : {0, 1, 300}) {
      const auto from = test::normal(c.x.size(tokens), 1),
                 before = test::normal(c.out.size(tokens), 2);
      auto expected = before;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < c.out.heads; ++h)
          for (int64_t d = 0; d < c.width; ++d)
            expected[static_cast<size_t>(c.out.first + t * c.out.stride() + h * c.out.head_dim +
                                         d)] =
                from[static_cast<size_t>(c.x.first + t * c.x.stride() +
                                         (c.x.heads == 1 ? 0 : h) * c.x.head_dim + d)];
      const auto run = [&](Backend& backend) {
        const test::OnBackend<float> x(backend, from), out(backend, before);
        backend.copy_heads({.x = c.x.view(x.data(), tokens),
                            .out = c.out.view(out.data(), tokens),
                            .width = c.width});
        return out.values();
      };
      CHECK(test::same_bytes(run(*test::make_backend("reference")), expected));
      test::for_each_backend([&](Backend& backend) {
        INFO(c.out.heads << " heads, width " << c.width << ", " << tokens << " tokens");
        CHECK(test::same_bytes(run(backend), expected));
      });
    }
}

TEST_CASE("add: every backend agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const int64_t count : {0, 1, 37, 64, 100003})
    for (const float multiplier : {1.0f, 0.22f}) {
      const auto run = [&](Backend& backend) {
        const test::OnBackend<float> x(backend, test::normal(count, 1));
        const test::OnBackend<float> out(backend, test::normal(count, 2));
        backend.add({.x = x.data(), .multiplier = multiplier, .count = count, .out = out.data()});
        return out.values();
      };
      const auto expected = run(*reference);
      test::for_each_backend([&](Backend& backend) {
        INFO(count << " values times " << multiplier);
        CHECK(test::agree_relatively(run(backend), expected, 1e-6, 1.0));
        if (multiplier == 1.0f) CHECK(test::same_bytes(run(backend), expected));
      });
    }
}

/// Rows in an order of no pattern, each at most once.
std::vector<int32_t> some_rows(int64_t count, int64_t rows) {
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(static_cast<int32_t>((i * 37 + 5) % rows));
  return chosen;
}

TEST_CASE("gather_rows: every backend copies the rows named, of every type") {
  constexpr int64_t kRows = 101;
  for (const ComputeType type : test::kComputeTypes)
    for (const int64_t width : {1, 37, 576})
      for (const int64_t count : {0, 1, 101}) {
        const auto from = test::to_elements(test::normal(kRows * width, 1), type);
        const auto rows = some_rows(count, kRows);
        const int64_t row_bytes = width * static_cast<int64_t>(bytes_of(type));
        std::vector<std::byte> expected;
        for (const int64_t row : rows)
          expected.insert(expected.end(), from.begin() + row * row_bytes,
                          from.begin() + (row + 1) * row_bytes);
        const auto run = [&](Backend& backend) {
          const test::OnBackend<std::byte> x(backend, from);
          const test::OnBackend<int32_t> chosen(backend, rows);
          const test::OnBackend<std::byte> out(backend, std::vector<std::byte>(expected.size()));
          backend.gather_rows({.x = x.data(),
                               .type = type,
                               .rows = chosen.data(),
                               .count = count,
                               .width = width,
                               .out = out.data()});
          return out.values();
        };
        CHECK(run(*test::make_backend("reference")) == expected);
        test::for_each_backend([&](Backend& backend) {
          INFO(count << " rows of " << width << " as " << name_of(type));
          CHECK(run(backend) == expected);
        });
      }
}

TEST_CASE("scatter_add: every backend agrees with the reference and leaves other rows alone") {
  const auto reference = test::make_backend("reference");
  constexpr int64_t kRows = 101;
  for (const int64_t width : {1, 37, 576})
    for (const int64_t count : {0, 1, 60}) {
      const auto rows = some_rows(count, kRows);
      const auto before = test::normal(kRows * width, 3);
      const auto run = [&](Backend& backend) {
        const test::OnBackend<float> x(backend, test::normal(count * width, 1));
        const test::OnBackend<float> weights(backend, test::normal(count, 2)), out(backend, before);
        const test::OnBackend<int32_t> chosen(backend, rows);
        backend.scatter_add({.x = x.data(),
                             .rows = chosen.data(),
                             .weights = weights.data(),
                             .count = count,
                             .width = width,
                             .out = out.data()});
        return out.values();
      };
      const auto expected = run(*reference);
      test::for_each_backend([&](Backend& backend) {
        INFO(count << " rows of " << width);
        const auto actual = run(backend);
        CHECK(test::agree_relatively(actual, expected, 1e-6, 1.0));
        for (int32_t row = 0; row < kRows; ++row)
          if (std::find(rows.begin(), rows.end(), row) == rows.end())
            CHECK(std::equal(actual.begin() + row * width, actual.begin() + (row + 1) * width,
                             before.begin() + row * width));
      });
    }
}

TEST_CASE("scatter_add: without weights every row is added as it is") {
  constexpr int64_t kRows = 41, kCount = 23;
  const auto rows = some_rows(kCount, kRows);
  for (const int64_t width : {1, 37, 64})
    test::for_every_backend([&](Backend& backend) {
      INFO("width " << width);
      const auto x = test::normal(kCount * width, 1), before = test::normal(kRows * width, 3);
      const test::OnBackend<float> added(backend, x), out(backend, before);
      const test::OnBackend<int32_t> chosen(backend, rows);
      backend.scatter_add({.x = added.data(),
                           .rows = chosen.data(),
                           .count = kCount,
                           .width = width,
                           .out = out.data()});
      auto expected = before;
      for (size_t i = 0; i < kCount; ++i)
        for (size_t d = 0; d < static_cast<size_t>(width); ++d)
          expected[static_cast<size_t>(rows[i]) * static_cast<size_t>(width) + d] +=
              x[i * static_cast<size_t>(width) + d];
      CHECK(test::same_bytes(out.values(), expected));
    });
}

}  // namespace
}  // namespace kvcal
