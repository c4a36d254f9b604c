#include "eval/shared_prefixes.h"

#include <algorithm>
#include <map>
#include <random>

#include "support/catch.h"

using namespace kvcal;

namespace {

using Sequences = std::vector<std::vector<TokenId>>;

std::vector<SharedPart> parts_of(const Sequences& sequences, int64_t most_height) {
  std::vector<std::span<const TokenId>> views(sequences.begin(), sequences.end());
  return shared_parts(views, most_height);
}

/// Checks a part and those behind it, and adds its tokens to each of its sequences.
void check_part(const SharedPart& part, const Sequences& sequences, int64_t most_height,
                Sequences& seen) {
  CHECK(part.height() <= most_height);
  REQUIRE(part.begin < part.end);
  const bool is_whole = part.begin == 0 && sequences[part.first].size() == 1;
  CHECK((part.size() >= 2 || is_whole));
  for (size_t i = part.first; i < part.last; ++i) {
    REQUIRE(seen[i].size() == part.begin);
    REQUIRE(sequences[i].size() >= part.end);
    seen[i].insert(seen[i].end(), sequences[part.first].begin() + static_cast<int64_t>(part.begin),
                   sequences[part.first].begin() + static_cast<int64_t>(part.end));
  }
  for (const SharedPart& next : part.next)
    check_part(next, sequences, std::max<int64_t>(most_height - 1, 0), seen);
}

size_t tokens_of(const std::vector<SharedPart>& parts) {
  size_t tokens = 0;
  for (const SharedPart& part : parts) tokens += part.size() + tokens_of(part.next);
  return tokens;
}

std::vector<TokenId> run_of(TokenId first, size_t count, std::vector<TokenId> more = {}) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(first + static_cast<TokenId>(i));
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

}  // namespace

TEST_CASE("shared prefixes: a context is run once, and the examples before all contexts once") {
  const Sequences sequences{run_of(100, 50, {1, 2, 3}), run_of(100, 50, {1, 5, 6, 7}),
                            run_of(100, 50, {9, 9})};
  const auto parts = parts_of(sequences, 5);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].end == 50);
  CHECK(tokens_of(parts) == 50 + 3 + 4 + 2);
  Sequences questions;
  for (TokenId question = 0; question < 3; ++question)
    for (TokenId answer = 0; answer < 2; ++answer) {
      std::vector<TokenId> ids = run_of(100, 50);
      const std::vector<TokenId> rest = run_of(1000 * (1 + question), 20, {answer, answer});
      ids.insert(ids.end(), rest.begin(), rest.end());
      questions.push_back(ids);
    }
  CHECK(tokens_of(parts_of(questions, 5)) == 50 + 3 * (20 + 2 * 2));
  CHECK(tokens_of(parts_of(questions, 1)) == 50 + 6 * 22);
  CHECK(tokens_of(parts_of(questions, 0)) == 6 * 72);
}

TEST_CASE("shared prefixes: few tokens are not shared, and one alone is never left") {
  CHECK(tokens_of(parts_of({run_of(0, 7, {50, 51}), run_of(0, 7, {60, 61})}, 3)) == 18);
  // One token would be left of each: two of those in common stay with them.
  const auto parts = parts_of({run_of(0, 20, {50}), run_of(0, 20, {60})}, 3);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].end == 18);
  // A sequence that is the beginning of another is run with it.
  CHECK(tokens_of(parts_of({run_of(0, 20), run_of(0, 30)}, 3)) == 30);
  CHECK(tokens_of(parts_of({run_of(0, 20), run_of(0, 21)}, 3)) == 18 + 2 + 3);
  CHECK(tokens_of(parts_of({{7}}, 3)) == 1);
  CHECK(parts_of({}, 3).empty());
}

TEST_CASE("shared prefixes: the parts of any sequences make them up") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Sequences sequences;
    for (size_t i = 0; i < 1 + random() % 30; ++i) {
      std::vector<TokenId> ids;
      if (!sequences.empty() && random() % 4 > 0) {
        const auto& other = sequences[random() % sequences.size()];
        ids.assign(other.begin(), other.begin() + static_cast<int64_t>(random() % other.size()));
      }
      const size_t more = 1 + random() % 20;
      for (size_t k = 0; k < more; ++k) ids.push_back(static_cast<TokenId>(random() % 3));
      sequences.push_back(std::move(ids));
    }
    std::ranges::sort(sequences);
    sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
    for (const int64_t most_height : {0, 1, 2, 9}) {
      Sequences seen(sequences.size());
      for (const SharedPart& part : parts_of(sequences, most_height))
        check_part(part, sequences, most_height, seen);
      CHECK(seen == sequences);
    }
  }
}
