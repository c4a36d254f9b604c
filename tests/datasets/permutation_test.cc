#include <algorithm>
#include <span>

#include "core/file.h"
#include "core/hash.h"
#include "core/json.h"
#include "datasets/dataset.h"
#include "support/catch.h"
#include "support/folders.h"

namespace kvcal {
namespace {

/// Of the order as little-endian 64-bit integers.
std::string sha256_of(const std::vector<int64_t>& order) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(order)));
  return hash.hex();
}

// Expectations: reference/datasets_shuffle.py.
TEST_CASE("shuffled_indices: the order of numpy and datasets, for all counts and seeds") {
  const std::string folder = test::tests_folder().string() + "/fixtures/text/datasets/";
  const Json rows = parse_json(read_text(folder + "shuffle.json"));
  REQUIRE(rows.size() == 155);
  for (const Json& row : rows) {
    const auto count = row["count"].get<int64_t>();
    const auto seed = row["seed"].get<uint64_t>();
    INFO("count " << count << ", seed " << seed);
    const std::vector<int64_t> order = shuffled_indices(count, seed);
    REQUIRE(std::ssize(order) == count);
    const auto shown = std::min<std::ptrdiff_t>(8, std::ssize(order));
    CHECK(std::vector(order.begin(), order.begin() + shown) ==
          row["first"].get<std::vector<int64_t>>());
    CHECK(std::vector(order.end() - shown, order.end()) == row["last"].get<std::vector<int64_t>>());
    CHECK(sha256_of(order) == row["sha256"].get<std::string>());
  }
}

TEST_CASE("shuffled_indices: no records give no order, impossible counts are refused") {
  CHECK(shuffled_indices(0, 42).empty());
  CHECK_THROWS_AS(shuffled_indices(-1, 42), Error);
  CHECK_THROWS_AS(shuffled_indices((int64_t{1} << 32) + 1, 42), Error);
}

}  // namespace
}  // namespace kvcal
