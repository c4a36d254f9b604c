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

/// Rows of x for some of each out row's places, and the others of its places outside x.
struct Combined {
  int64_t rows = 0, per_row = 1, first = 0, count = 0, width = 1;
  bool has_places = true, has_weights = true;
};

std::vector<float> combine(Backend& backend, const Combined& c, bool at_once) {
  const test::OnBackend<float> x(backend, test::normal(c.count * c.width, 1)),
      weights(backend, test::normal(c.count, 2)), out(backend, test::normal(c.rows * c.width, 3));
  std::vector<int32_t> all;
  for (int64_t i = 0; i < c.rows * c.per_row; ++i)
    all.push_back(static_cast<int32_t>(i * 37 % (c.rows * c.per_row)));
  const test::OnBackend<int32_t> places(backend, all);
  CombineRowsArgs args{.x = x.data(),
                       .places = c.has_places ? places.data() : nullptr,
                       .weights = c.has_weights ? weights.data() : nullptr,
                       .first = c.first,
                       .count = c.count,
                       .rows = c.rows,
                       .per_row = c.per_row,
                       .width = c.width,
                       .out = out.data()};
  if (at_once) {
    backend.combine_rows(args);
    return out.values();
  }
  // One place of each row after the other.
  for (int64_t n = 0; n < c.per_row; ++n) {
    std::vector<int32_t> one;
    for (int64_t row = 0; row < c.rows; ++row)
      one.push_back(all[static_cast<size_t>(row * c.per_row + n)]);
    const test::OnBackend<int32_t> in_turn(backend, one);
    CombineRowsArgs part = args;
    part.places = c.has_places ? in_turn.data() : nullptr;
    part.per_row = 1;
    backend.combine_rows(part);
  }
  return out.values();
}

TEST_CASE(
    "combine_rows: every backend adds a row's places in turn, and agrees with the reference") {
  const auto reference = test::make_backend("reference");
  for (const int64_t width : {1, 37, 576})
    for (const Combined& c : {Combined{101, 3, 60, 120, width}, Combined{101, 1, 0, 101, width},
                              Combined{41, 8, 0, 328, width}, Combined{41, 2, 5, 0, width},
                              Combined{23, 1, 0, 23, width, false, false}, Combined{0, 2}}) {
      const auto expected = combine(*reference, c, true);
      test::for_every_backend([&](Backend& backend) {
        INFO(c.rows << " rows with " << c.per_row << " places, width " << width);
        const auto actual = combine(backend, c, true);
        CHECK(test::agree_relatively(actual, expected, 1e-6 * static_cast<double>(c.per_row), 1.0));
        CHECK(test::same_bytes(actual, combine(backend, c, false)));
        if (c.count == 0) CHECK(test::same_bytes(actual, test::normal(c.rows * c.width, 3)));
      });
    }
}

}  // namespace
}  // namespace kvcal
