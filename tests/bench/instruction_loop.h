#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace kvcal::bench {

/// What bounds products on this processor: multiply-adds that do not wait for each other, of the
/// class that the kernels use (KVCAL_CPU limits both), on one thread.
/// - float32: fused multiply-adds of registers.
/// - bfloat16: dot products of registers (AVX512-BF16). AMX's eight tiles hold sums and operands,
/// so
///   there each product loads what it multiplies, of the larger matrix from the second-level cache.
///   Other classes multiply in float32, in which products of bfloat16 are exact.
class InstructionLoop {
 public:
  explicit InstructionLoop(ComputeType type);
  ~InstructionLoop();
  InstructionLoop(const InstructionLoop&) = delete;
  InstructionLoop& operator=(const InstructionLoop&) = delete;

  /// Of one run.
  double flop() const;
  /// Takes some ten milliseconds on the calling thread. Threads may run one loop together.
  void run() const;
  /// "avx512_bf16: dot products of bfloat16"
  const std::string& name() const { return name_; }

 private:
  struct Tiles;

  double flop_per_step_ = 0;
  void (*body_)(int64_t steps) = nullptr;  ///< nullptr: tiles
  std::unique_ptr<Tiles> tiles_;
  std::string name_;
};

/// Bytes a second that threads read from memory together, each its own; the middle of some passes.
double read_rate(int threads);

}  // namespace kvcal::bench
