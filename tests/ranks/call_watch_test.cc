#include "ranks/call_watch.h"

#include <chrono>
#include <cstdlib>
#include <future>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("a call that does not return is noticed once") {
  const Watch watch(std::chrono::milliseconds(40));
  std::promise<void> noticed;
  CallWatch calls(watch, [&] { noticed.set_value(); });  // a second time would throw
  const CallWatch::Call endless(calls);
  REQUIRE(noticed.get_future().wait_for(std::chrono::minutes(5)) == std::future_status::ready);
}

TEST_CASE("calls that return are none, and without a timeout no call is stuck") {
  Watch watch(std::chrono::hours(1));
  CallWatch calls(watch, [] { std::abort(); });
  for (int i = 0; i < 10'000; ++i) const CallWatch::Call short_one(calls);
  watch.wait_forever();
  const CallWatch::Call endless(calls);
}
