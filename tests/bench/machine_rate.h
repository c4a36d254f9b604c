#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace kvcal::bench {

/// Seconds of processor time that all threads of this process took so far.
double process_cpu_seconds();
/// Seconds of a clock that only goes on.
double wall_seconds();
/// Seconds since this process was started, to the kernel's hundredth.
double seconds_since_process_start();

/// The middle of at least one value.
inline double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// FLOP of causal attention, 2 a multiplication with its addition: keys further back than the
/// window are not counted. width: head_dim + v_head_dim of all query heads.
inline double attention_flop(int64_t history, int64_t queries, int64_t window, int64_t width) {
  double pairs = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t visible = history + i + 1;
    pairs += static_cast<double>(window > 0 ? std::min(visible, window) : visible);
  }
  return 2.0 * pairs * static_cast<double>(width);
}

/// Runs body on so many threads at once, which any processor of this process may take; thread: 0,
/// 1, ... Rethrows the first exception.
void on_threads(int threads, const std::function<void(int thread)>& body);

/// The machine's limit for matrix products, as it is at this moment.
struct MachineRate {
  double flop_per_second = 0;      ///< by the wall clock
  double flop_per_cpu_second = 0;  ///< by the time of all threads: other processes do not count
  std::string source;              ///< the name of its InstructionLoop
  void take_larger(const MachineRate& other);
};

/// That of InstructionLoop on so many threads at once: the middle of at least five repeats, and as
/// many as take a quarter of a second. This is what "the processor's limit, measured in the same
/// run" means in all tables.
MachineRate machine_rate(ComputeType type, int threads);

}  // namespace kvcal::bench
