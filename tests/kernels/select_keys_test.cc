// Selection of keys for sparse attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/attention_case.h"

namespace kvcal {
namespace {

using test::prefill;

struct SelectionCase {
  std::string what;
  std::vector<Segment> segments;
  int64_t heads = 4, head_dim = 32, topk = 16;
  bool is_coarse = false;  ///< small whole numbers: many scores are equal, and all are exact

  int64_t rows(bool of_keys) const {
    int64_t rows = 0;
    for (const Segment& s : segments)
      rows = std::max(rows, of_keys ? s.kv_begin + s.kv_count : s.q_begin + s.q_count);
    return rows;
  }
  std::vector<float> values(int64_t count, uint64_t seed) const {
    auto values = test::normal(count, seed);
    if (is_coarse)
      for (float& value : values) value = std::round(value);
    return values;
  }
  std::vector<float> q() const { return values(rows(false) * heads * head_dim, 1); }
  std::vector<float> weights() const { return values(rows(false) * heads, 2); }
  std::vector<float> k() const { return values(rows(true) * head_dim, 3); }
  int64_t row_words() const { return KeySelection::words_of(rows(true)) + 2; }
};

const std::vector<SelectionCase> kSelections{
    {.what = "packed", .segments = prefill({5, 40, 1, 150, 16, 17})},
    {.what = "many heads", .segments = prefill({90}), .heads = 21, .head_dim = 7, .topk = 3},
    {.what = "one head", .segments = prefill({70}), .heads = 1, .head_dim = 128, .topk = 1},
    {.what = "all fit", .segments = prefill({70, 9}), .topk = 70},
    {.what = "several rows of scores", .segments = prefill({600}), .heads = 2, .topk = 64},
    {.what = "history",
     .segments = {{.q_begin = 0, .q_count = 30, .kv_begin = 0, .kv_count = 300},
                  {.q_begin = 30, .q_count = 1, .kv_begin = 300, .kv_count = 200},
                  {.q_begin = 31, .q_count = 0, .kv_begin = 0, .kv_count = 0}},
     .topk = 33},
    {.what = "equal scores", .segments = prefill({130, 70}), .head_dim = 3, .is_coarse = true},
    {.what = "most scores are zero",
     .segments = prefill({130}),
     .heads = 1,
     .head_dim = 2,
     .topk = 100,
     .is_coarse = true},
};

std::vector<uint32_t> select(Backend& backend, const SelectionCase& c,
                             const std::vector<float>& k) {
  const test::OnBackend<float> q(backend, c.q()), weights(backend, c.weights()), keys(backend, k);
  const test::OnBackend<uint32_t> out(
      backend,
      std::vector<uint32_t>(static_cast<size_t>(c.rows(false) * c.row_words()), 0xdeadbeefu));
  backend.select_keys({.q = q.data(),
                       .weights = weights.data(),
                       .k = keys.data(),
                       .segments = c.segments,
                       .heads = c.heads,
                       .head_dim = c.head_dim,
                       .topk = c.topk,
                       .out = out.data(),
                       .row_words = c.row_words()});
  return out.values();
}

/// Scores of the keys that query i of a segment sees, by the formula.
std::vector<double> scores_of(const SelectionCase& c, const Segment& segment, int64_t i) {
  const auto q = c.q(), weights = c.weights(), k = c.k();
  std::vector<double> scores;
  for (int64_t key = 0; key <= segment.kv_count - segment.q_count + i; ++key) {
    double score = 0.0;
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t q_head = (segment.q_begin + i) * c.heads + head;
      double product = 0.0;
      for (int64_t d = 0; d < c.head_dim; ++d)
        product += static_cast<double>(q[static_cast<size_t>(q_head * c.head_dim + d)]) *
                   k[static_cast<size_t>((segment.kv_begin + key) * c.head_dim + d)];
      score += static_cast<double>(weights[static_cast<size_t>(q_head)]) * std::max(product, 0.0);
    }
    scores.push_back(score);
  }
  return scores;
}

/// Whether row selects the topk largest scores and nothing else. Scores this near may stand for
/// each other; with 0, of equal ones the earlier keys come first.
bool selects_largest(const uint32_t* row, int64_t row_words, const std::vector<double>& scores,
                     int64_t topk, double near) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const size_t count = std::min(scores.size(), static_cast<size_t>(topk));
  const double least = scores[order[count - 1]];
  std::vector<bool> wanted(static_cast<size_t>(row_words) * 32);
  for (size_t i = 0; i < count; ++i) wanted[order[i]] = true;
  int64_t selected = 0;
  for (size_t key = 0; key < wanted.size(); ++key) {
    const bool is_set = KeySelection::holds(row, static_cast<int64_t>(key));
    selected += is_set ? 1 : 0;
    if (is_set == wanted[key]) continue;
    if (key >= scores.size() || !(std::fabs(scores[key] - least) < near)) return false;
  }
  return selected == static_cast<int64_t>(count);
}

TEST_CASE("select_keys: every backend selects the keys with the largest scores") {
  for (const SelectionCase& c : kSelections) {
    const auto check = [&](Backend& backend) {
      const auto words = select(backend, c, c.k());
      size_t wrong = 0;
      for (const Segment& segment : c.segments)
        for (int64_t i = 0; i < segment.q_count; ++i)
          wrong +=
              selects_largest(words.data() + (segment.q_begin + i) * c.row_words(), c.row_words(),
                              scores_of(c, segment, i), c.topk, c.is_coarse ? 0.0 : 1e-4)
                  ? 0
                  : 1;
      INFO(c.what << " on " << backend.description());
      CHECK(wrong == 0);
    };
    check(*test::make_backend("reference"));
    test::for_each_backend(check);
  }
}

TEST_CASE("select_keys: a query's selection does not depend on the queries beside it") {
  const SelectionCase whole{.what = "whole", .segments = prefill({300}), .topk = 20};
  SelectionCase piece = whole;
  test::for_each_backend([&](Backend& backend) {
    const auto expected = select(backend, whole, whole.k());
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {19, 22}, {63, 65}, {90, 207}, {299, 300}}) {
      piece.segments = {{.q_begin = begin, .q_count = end - begin, .kv_begin = 0, .kv_count = end}};
      const auto words = select(backend, piece, whole.k());
      INFO("queries " << begin << " to " << end);
      for (int64_t row = begin; row < end; ++row)
        for (int64_t word = 0; word < std::min(piece.row_words(), whole.row_words()); ++word)
          REQUIRE(words[static_cast<size_t>(row * piece.row_words() + word)] ==
                  expected[static_cast<size_t>(row * whole.row_words() + word)]);
    }
  });
}

/// The keys that a query of so many keys reads, by the formula: those of the topk best blocks, and
/// those behind the last block. Products are whole numbers, so equal scores are equal everywhere.
std::vector<uint32_t> selected_in_blocks(const SelectionCase& c, int64_t block, int64_t row,
                                         int64_t keys) {
  const auto q = c.q(), k = c.k();
  std::vector<std::pair<double, int64_t>> blocks;  // the best first
  for (int64_t i = 0; i < keys / block; ++i) {
    double score = 0.0;
    for (int64_t head = 0; head < c.heads; ++head) {
      double product = 0.0;
      for (int64_t d = 0; d < c.head_dim; ++d)
        product +=
            static_cast<double>(q[static_cast<size_t>((row * c.heads + head) * c.head_dim + d)]) *
            k[static_cast<size_t>(i * c.head_dim + d)];
      score += std::max(product, 0.0);
    }
    blocks.emplace_back(-score, i);
  }
  std::ranges::sort(blocks);
  std::vector<uint32_t> words(static_cast<size_t>(c.row_words()));
  const auto add = [&](int64_t key) {
    words[static_cast<size_t>(key / 32)] |= uint32_t{1} << (key % 32);
  };
  for (size_t i = 0; i < std::min(blocks.size(), static_cast<size_t>(c.topk)); ++i)
    for (int64_t key = 0; key < block; ++key) add(blocks[i].second * block + key);
  for (int64_t key = keys / block * block; key < keys; ++key) add(key);
  return words;
}

TEST_CASE("select_keys: in blocks, a query reads the best ones and the keys behind the last") {
  for (const int64_t block : {3, 4, 40, 200})
    for (const int64_t topk : {1, 5, 64}) {
      const SelectionCase c{.what = "blocks",
                            .segments = {{.q_count = 300, .kv_count = 310}},
                            .heads = 2,
                            .head_dim = 5,
                            .topk = topk,
                            .is_coarse = true};
      const auto check = [&](Backend& backend) {
        const test::OnBackend<float> q(backend, c.q()), keys(backend, c.k());
        const test::OnBackend<uint32_t> out(
            backend, std::vector<uint32_t>(static_cast<size_t>(300 * c.row_words()), 0xdeadbeefu));
        backend.select_keys({.q = q.data(),
                             .k = keys.data(),
                             .segments = c.segments,
                             .heads = c.heads,
                             .head_dim = c.head_dim,
                             .topk = topk,
                             .block = block,
                             .out = out.data(),
                             .row_words = c.row_words()});
        const auto words = out.values();
        INFO("blocks of " << block << ", top " << topk << " on " << backend.description());
        for (int64_t row = 0; row < 300; ++row) {
          const auto begin = words.begin() + row * c.row_words();
          REQUIRE(std::vector<uint32_t>(begin, begin + c.row_words()) ==
                  selected_in_blocks(c, block, row, 11 + row));
        }
      };
      check(*test::make_backend("reference"));
      test::for_each_backend(check);
    }
}

TEST_CASE("select_keys: a score that is NaN is the largest") {
  const SelectionCase c{.what = "NaN", .segments = prefill({100}), .topk = 4};
  auto k = c.k();
  k[static_cast<size_t>(50 * c.head_dim)] = std::numeric_limits<float>::quiet_NaN();
  const auto check = [&](Backend& backend) {
    INFO(backend.description());
    const auto words = select(backend, c, k);
    for (int64_t row = 50; row < 100; ++row)
      REQUIRE(KeySelection::holds(words.data() + row * c.row_words(), 50));
  };
  check(*test::make_backend("reference"));
  test::for_each_backend(check);
}

TEST_CASE("order_of_score: larger scores have larger numbers, and zeros are equal") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending{-inf, -3.0f, -1e-40f, 0.0f, 1e-40f, 2.0f, inf};
  for (size_t i = 1; i < ascending.size(); ++i)
    CHECK(order_of_score(ascending[i - 1]) < order_of_score(ascending[i]));
  CHECK(order_of_score(-0.0f) == order_of_score(0.0f));
  CHECK(order_of_score(std::numeric_limits<float>::quiet_NaN()) > order_of_score(inf));
}

}  // namespace
}  // namespace kvcal
