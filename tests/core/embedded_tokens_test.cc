#include "core/embedded_tokens.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

/// Ten tokens: image 1 at 0 to 2, which is in two pieces, image 2 at 3, image 3 at 6 and 7.
EmbeddedTokens some() {
  EmbeddedTokens all;
  all.positions = {0, 2, 3, 6, 7};
  all.images = {1, 1, 2, 3, 3};
  for (int32_t token = 0; token < 10; ++token) all.places.push_back({token, 0, 2 * token});
  return all;
}

}  // namespace

TEST_CASE("embedded tokens: runs are consecutive tokens of one image") {
  const std::vector<EmbeddedRun> runs = runs_of(some());
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].position == 0);
  CHECK(runs[0].count == 1);
  CHECK(runs[1].position == 2);
  CHECK(runs[1].count == 1);
  CHECK(runs[2].position == 3);
  CHECK(runs[2].first == 2);
  CHECK(runs[3].position == 6);
  CHECK(runs[3].first == 3);
  CHECK(runs[3].count == 2);
}

TEST_CASE("embedded tokens: the last token of an image, and of text") {
  const EmbeddedTokens all = some();
  CHECK(all.last_of_image(0) == 2);
  CHECK(all.last_of_image(1) == 1);
  CHECK(all.last_of_image(2) == 2);
  CHECK(all.last_of_image(3) == 3);
  CHECK(all.last_of_image(6) == 7);
  CHECK(all.last_of_image(9) == 9);
}

TEST_CASE("embedded tokens: a cut leaves the tokens before it") {
  EmbeddedTokens all = some();
  all.cut(7);
  CHECK(all.positions == std::vector<int32_t>{0, 2, 3, 6});
  CHECK(all.images == std::vector<int32_t>{1, 1, 2, 3});
  CHECK(all.places.size() == 7);
  CHECK(all.last_of_image(6) == 6);
  all.cut(0);
  CHECK(all.count() == 0);
}

TEST_CASE("embedded tokens: behind the first token rows move, places stay") {
  const std::vector<float> numbers(5 * 2, 1.0f);
  EmbeddedTokens all = some();
  all.rows = {.name = "embeddings",
              .dtype = DType::kF32,
              .shape = {5, 2},
              .bytes = std::as_bytes(std::span(numbers))};
  all.injected[1] = all.rows;
  const EmbeddedTokens next = behind_first(all);
  CHECK(next.positions == std::vector<int32_t>{1, 2, 5, 6});
  CHECK(next.images == std::vector<int32_t>{1, 2, 3, 3});
  CHECK(next.rows.shape == Shape{4, 2});
  CHECK(next.rows.bytes.data() == all.rows.bytes.data() + 2 * sizeof(float));
  CHECK(next.places == all.places);
  CHECK(next.injected.empty());
}
