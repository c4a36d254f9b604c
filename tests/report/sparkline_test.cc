#include "report/markup.h"

#include <cmath>

#include "support/catch.h"

using namespace kvcal::report;

TEST_CASE("sparkline: equal ratios are equal steps") {
  CHECK(sparkline({1, 2, 4, 8, 16, 32, 64, 128, 256}, false) == ".:-=+*#@@");
  CHECK(sparkline({1, 256}, true) == "▁█");
}

TEST_CASE("sparkline: values within a factor of 2 stay near the middle") {
  CHECK(sparkline({1.0, 1.01}, false) == "=+");
  CHECK(sparkline({3.0}, false) == "+");
}

TEST_CASE("sparkline: what is not positive is a blank, and no part of the range") {
  CHECK(sparkline({1, 0, -3, std::nan(""), 4}, false) == ".   @");
  CHECK(sparkline({0, 0}, false) == "  ");
  CHECK(positive_range({0, 5, std::nan(""), 2}) == std::pair{2.0, 5.0});
  CHECK(std::isnan(positive_range({-1}).first));
}
