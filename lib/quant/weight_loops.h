#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

/// The loops over a weight's elements, each compiled for several instruction sets; the processor
/// decides which one runs, and all give the same bits.
namespace kvcal::weight_loops {

/// Bytes of an element of F16, BF16 or F32.
inline uint64_t bytes_of_element(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

/// Elements of dtype F16, BF16 or F32 at any address.
struct Run {
  const std::byte* elements = nullptr;
  DType dtype = DType::kF32;
  size_t count = 0;
};

/// How a run becomes codes of E4M3FN.
struct Coding {
  float scale = 1.0f;            ///< finite and positive
  bool rounds_quotient = false;  ///< to the run's dtype, before it becomes a code
};

/// The loops for one instruction set.
struct Loops {
  const char* name;
  /// The bits of the run's largest magnitude, in its dtype: as integers, magnitudes are in order,
  /// and those from infinity up are not finite.
  uint32_t (*largest_magnitude)(const Run& run);
  /// codes[count] of finite elements.
  void (*encode)(const Run& run, const Coding& coding, uint8_t* codes);
  /// powers[count] = |element - scale x code|^norm of finite elements; 0 for no difference. Double,
  /// within 1e-12 of the exact power.
  void (*error_powers)(const Run& run, const Coding& coding, double norm, double* powers);
};

/// Those that this processor can run, the best one last.
std::vector<Loops> runnable();
/// The best of them.
const Loops& best();

}  // namespace kvcal::weight_loops
