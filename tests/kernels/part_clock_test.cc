// The device's time by part. On the simulated device each operation of a stream takes a
// millisecond.
#ifdef KVCAL_TEST_SIMULATED_GPU

#include "kernels/gpu/device_memory.h"

#include <array>

#include "support/catch.h"

namespace kvcal::gpu {
namespace {

/// A stream with a clock, and work of so many milliseconds for it.
struct Timed {
  DeviceMemory memory;
  Stream stream;
  PartClock clock{stream, memory};
  std::array<std::byte, 8> data{};

  void work(int milliseconds) {
    for (int i = 0; i < milliseconds; ++i) stream.fill_zero(data.data(), data.size());
  }
  void run(std::string_view operation, int milliseconds) {
    const WatchedOperation watched(&clock, operation);
    work(milliseconds);
  }
  /// "products 3, attention 1, passes 0, waits 0, copies 0"
  std::string text() {
    std::string all;
    for (const PartTime& time : clock.times())
      all += (all.empty() ? "" : ", ") + time.part + " " +
             std::to_string(static_cast<int>(time.seconds * 1e3 + 0.5));
    return all;
  }
};

TEST_CASE("part clock: operations count to their part, and what is beside them to none") {
  Timed timed;
  CHECK(timed.text() == "products 0, attention 0, passes 0, waits 0, copies 0");
  timed.run("matmul_groups", 3);
  timed.work(100);
  timed.run("attention_weights", 2);
  timed.run("norm", 4);
  timed.run(PartClock::kCopy, 5);
  timed.run(PartClock::kWait, 6);
  timed.run("matmul_fp8", 1);
  CHECK(timed.text() == "products 4, attention 2, passes 4, waits 6, copies 5");
}

TEST_CASE("part clock: an operation within another is part of it, but a wait is a wait") {
  Timed timed;
  {
    const WatchedOperation outer(&timed.clock, "matmul_activate");
    timed.work(1);
    timed.run("activate", 2);
    timed.run(PartClock::kWait, 7);
    timed.run("matmul", 3);
  }
  CHECK(timed.text() == "products 6, attention 0, passes 0, waits 7, copies 0");
}

TEST_CASE("part clock: recordings are not timed, and long runs are read meanwhile") {
  Timed timed;
  {
    const DeviceMemory::Closed closed(timed.memory);
    timed.run("matmul", 3);
  }
  for (int i = 0; i < 10000; ++i) timed.run(i % 2 == 0 ? "rope" : "attention", 1);
  CHECK(timed.text() == "products 0, attention 5000, passes 5000, waits 0, copies 0");
}

}  // namespace
}  // namespace kvcal::gpu

#endif
