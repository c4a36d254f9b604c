#include "bench/machine_rate.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "bench/instruction_loop.h"

namespace kvcal::bench {
namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// CPUs of the process as it was started: threads that the backend pins hand theirs on.
const cpu_set_t kAllowed = [] {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}();

}  // namespace

double wall_seconds() {
  return seconds_of(CLOCK_MONOTONIC);
}

double process_cpu_seconds() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double seconds_since_process_start() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // The name in parentheses may hold spaces; the start, in ticks since boot, is the 20th behind it.
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return seconds_of(CLOCK_BOOTTIME) - std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void MachineRate::take_larger(const MachineRate& other) {
  if (other.flop_per_second > flop_per_second) {
    flop_per_second = other.flop_per_second;
    source = other.source;
  }
  flop_per_cpu_second = std::max(flop_per_cpu_second, other.flop_per_cpu_second);
}

void on_threads(int threads, const std::function<void(int thread)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      try {
        sched_setaffinity(0, sizeof(kAllowed), &kAllowed);
        body(thread);
      } catch (...) {
        errors[static_cast<size_t>(thread)] = std::current_exception();
      }
    });
  for (std::thread& thread : running) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

MachineRate machine_rate(ComputeType type, int threads) {
  const InstructionLoop loop(type);
  const auto run_all = [&] { on_threads(threads, [&](int) { loop.run(); }); };
  run_all();  // wakes the units
  const double flop = loop.flop() * threads;
  std::vector<double> by_wall, by_cpu;
  const double end = wall_seconds() + 0.25;
  while (by_wall.size() < 5 || wall_seconds() < end) {
    const double wall = wall_seconds(), cpu = process_cpu_seconds();
    run_all();
    by_wall.push_back(flop / (wall_seconds() - wall));
    by_cpu.push_back(flop / (process_cpu_seconds() - cpu));
  }
  return {middle_of(by_wall), middle_of(by_cpu), loop.name()};
}

}  // namespace kvcal::bench
