#include "core/text.h"

#include <vector>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("join: nothing, one text, several, and texts made of items") {
  CHECK(join(std::vector<std::string>{}, ", ").empty());
  CHECK(join(std::vector<std::string>{"a"}, ", ") == "a");
  CHECK(join(std::vector<std::string>{"", "b", ""}, ", ") == ", b, ");
  CHECK(join(std::vector<std::string_view>{"a", "b"}, " or ") == "a or b");
  CHECK(join(std::vector<int>{1, 2, 3}, "-", [](int i) { return std::to_string(i); }) == "1-2-3");
}
