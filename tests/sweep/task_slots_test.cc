#include "sweep/task_runner.h"

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("task slots: a list of devices is taken apart, one device stays as it is") {
  CHECK(devices_of("cpu") == std::vector<std::string>{"cpu"});
  CHECK(devices_of("cuda:3") == std::vector<std::string>{"cuda:3"});
  CHECK(devices_of("cuda:0,2") == std::vector<std::string>{"cuda:0", "cuda:2"});
}

TEST_CASE("task slots: tasks at a time divide devices and threads") {
  const DeviceOptions device{.device = "cuda:0,1", .threads = 9};
  CHECK(num_jobs(device, 0) == 2);
  CHECK(num_jobs(device, 5) == 5);
  const auto slots = make_slots(device, 3);
  REQUIRE(slots.size() == 3);
  CHECK(slots[0].device.device == "cuda:0");
  CHECK(slots[1].device.device == "cuda:1");
  CHECK(slots[2].device.device == "cuda:0");
  for (const TaskSlot& slot : slots) {
    CHECK(slot.device.threads == 3);
    CHECK_FALSE(slot.is_busy);
  }
  CHECK(make_slots({.device = "cpu", .threads = 2}, 5)[4].device.threads == 1);
  CHECK(make_slots({.device = "cpu", .threads = 0}, 1)[0].device.threads == 0);
  CHECK(num_threads({.threads = 0}) >= 1);
}
