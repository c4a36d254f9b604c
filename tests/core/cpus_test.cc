#include "core/process.h"

#include <thread>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("cpus: lists as Linux writes them") {
  CHECK(parse_cpu_list("0-3,8-11") == std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  CHECK(parse_cpu_list("0,2,4-4") == std::vector<int>{0, 2, 4});
  for (const char* wrong : {"", "a", "-1", "1-", "1,", ",1", "3-1", "2,1", "0-1,1", "1 2",
                            "0-99999999999", "0-70000", "1;2"}) {
    INFO(wrong);
    CHECK(parse_cpu_list(wrong).empty());
  }
}

TEST_CASE("cpus: a thread that is left some of them leaves them to its threads") {
  const std::vector<int> all = allowed_cpus();
  if (all.empty()) return;  // the system does not tell
  const std::vector<int> last{all.back()};
  std::vector<int> own, later;
  std::thread([&] {
    allow_cpus(last);
    own = allowed_cpus();
    std::thread([&] { later = allowed_cpus(); }).join();
    allow_cpus({});  // refused
    CHECK(allowed_cpus() == last);
  }).join();
  CHECK(own == last);
  CHECK(later == last);
  CHECK(allowed_cpus() == all);
}
