#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

/// Loops over a weight's elements, compiled for several instruction sets. The processor selects one
/// at run time; all give the same bits.
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

/// Parameters of coding a run as E4M3FN, E2M3 or E2M1.
struct Coding {
  float scale = 1.0f;            ///< finite and positive
  bool rounds_quotient = false;  ///< to the run's dtype, before coding
  bool keeps_zero_sign = false;  ///< a quotient of -0 gives the E4M3FN code of -0
};

/// Parameters of coding a run as integers: the quotient, rounded to the run's dtype, plus
/// zero_point, rounded again, then the nearest integer of [lowest, highest], ties to even.
struct IntCoding {
  float scale = 1.0f;  ///< finite and positive
  float zero_point = 0.0f;
  float lowest = -128.0f, highest = 127.0f;
  int32_t added = 0;  ///< to the integer, for the code
};

/// Smallest and largest value of a run, 0 included.
struct Extremes {
  float smallest = 0.0f, largest = 0.0f;
};

/// The loops for one instruction set.
struct Loops {
  const char* name;
  /// Bits of the run's largest magnitude, in its dtype. As integers, magnitudes keep their order,
  /// and values from infinity up are not finite.
  uint32_t (*largest_magnitude)(const Run& run);
  /// E4M3FN codes[count] of finite elements.
  void (*encode)(const Run& run, const Coding& coding, uint8_t* codes);
  /// codes[count] of finite elements, 4 bits each, as e2m1::encode. A quotient of -0 gives +0.
  void (*encode_e2m1)(const Run& run, const Coding& coding, uint8_t* codes);
  /// codes[count] of finite elements, 6 bits each: the nearest E2M3 value, ties to even, at most
  /// 7.5. The sign of zero stays.
  void (*encode_e2m3)(const Run& run, const Coding& coding, uint8_t* codes);
  /// codes[count] of finite elements.
  void (*encode_int)(const Run& run, const IntCoding& coding, uint8_t* codes);
  /// Of finite elements.
  Extremes (*extremes)(const Run& run);
  /// powers[count] = |element - scale x code|^norm of finite elements; 0 for no difference. Double,
  /// within 1e-12 of the exact power.
  void (*error_powers)(const Run& run, const Coding& coding, double norm, double* powers);
};

/// Loops that this processor can run, the best last.
std::vector<Loops> runnable();
/// The last of runnable().
const Loops& best();

}  // namespace kvcal::weight_loops
