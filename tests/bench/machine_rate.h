#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace kvcal::bench {

/// Seconds of processor time that all threads of this process took so far.
double process_cpu_seconds();
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

/// The machine's limit for matrix products, as it is at this moment.
struct MachineRate {
  double flop_per_second = 0;      ///< by the wall clock
  double flop_per_cpu_second = 0;  ///< by the time of all threads: other processes do not count
  std::string source;              ///< "oneDNN 4096", what was fastest
  void take_larger(const MachineRate& other);
};

/// oneDNN's plain product of two square matrices [size, size], its own layout for the weight,
/// float32 sums; the middle of a few repeats on that many threads. Throws Error where oneDNN
/// cannot.
MachineRate onednn_rate(ComputeType type, int64_t size, int num_threads);

/// A product of two square matrices [size, size] by a backend's matmul.
class Product {
 public:
  Product(Backend& backend, ComputeType type, int64_t size);
  double flop() const;
  void run();

 private:
  Backend& backend_;
  int64_t size_;
  std::unique_ptr<PackedMatrix> weight_;
  Buffer x_, out_;
};

/// The same product by the backend's matmul.
MachineRate backend_rate(Backend& backend, ComputeType type, int64_t size);

/// The best of both at some sizes: about a second of work. This is what "the GEMM rate measured in
/// the same run" means in all tables.
MachineRate machine_rate(Backend& backend, ComputeType type, int num_threads);

}  // namespace kvcal::bench
