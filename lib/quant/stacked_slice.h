#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace kvcal {

/// The place of one expert's matrix or bias in a tensor that stacks those of all.
struct StackedSlice {
  std::string tensor;           ///< [experts, outputs, inputs], or [experts, outputs] of biases
  int64_t index = 0;            ///< of the expert
  int64_t part = 0, parts = 1;  ///< of its outputs: gate and up may share a tensor
  bool is_transposed = false;   ///< [experts, inputs, outputs]
  /// Outputs of the parts alternate; else each part lies behind the one before.
  bool is_interleaved = false;

  /// Its values follow each other as they are wanted.
  bool is_contiguous() const { return !is_transposed && !(is_interleaved && parts > 1); }
};

/// [outputs, inputs] or [outputs] of the part. Throws Error, naming the tensor, where slice does
/// not lie in one of that shape.
Shape shape_of(const StackedSlice& slice, const Shape& stacked);

/// Everything that a stacked tensor holds of an expert.
TensorView expert_of(const TensorView& stacked, int64_t index);

/// The values of a slice: borrowed where they lie as they are wanted, else put together.
struct SliceValues {
  TensorView view;
  std::vector<std::byte> owned;
};

/// The slice's values, from a tensor of F32, F16 or BF16. Throws Error as shape_of does.
SliceValues values_of(const TensorView& stacked, const StackedSlice& slice);

}  // namespace kvcal
