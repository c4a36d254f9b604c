#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace kvcal {

/// Rows of a matrix: first, first + step, …
struct RowChoice {
  int64_t first = 0, step = 1, count = 0;
  int64_t at(int64_t index) const { return first + index * step; }
};

/// Location of one expert's matrix or bias in a tensor that stacks all experts.
struct StackedSlice {
  std::string tensor;           ///< [experts, outputs, inputs], or [experts, outputs] of biases
  int64_t experts = 0;          ///< of a tensor [experts · outputs, inputs]; 0: not such a tensor
  int64_t index = 0;            ///< of the expert
  int64_t part = 0, parts = 1;  ///< of its outputs: gate and up may share a tensor
  bool is_transposed = false;   ///< inputs before outputs
  /// Outputs of the parts alternate; else the parts are contiguous.
  bool is_interleaved = false;

  /// The values are contiguous and in order.
  bool is_contiguous() const { return !is_transposed && !(is_interleaved && parts > 1); }
};

/// Outputs of a part among all outputs of an expert.
RowChoice outputs_of(const StackedSlice& slice, int64_t outputs);

/// Shape of the part: [outputs, inputs] or [outputs]. Throws Error, naming the tensor, where slice
/// does not fit the shape in the file.
Shape shape_of(const StackedSlice& slice, const Shape& in_file);

/// Bytes of a part of a tensor, which are hollow where the tensor is.
std::span<const std::byte> bytes_of_part(const TensorView& tensor, size_t begin, size_t count);

/// All values of an expert in a stacked tensor. experts: as in StackedSlice.
TensorView expert_of(const TensorView& stacked, int64_t index, int64_t experts = 0);

/// Values of a slice: borrowed where they are contiguous, else copied.
struct SliceValues {
  TensorView view;
  std::vector<std::byte> owned;
};

/// Values of a slice from a tensor of F32, F16 or BF16. Throws Error as shape_of does.
SliceValues values_of(const TensorView& stacked, const StackedSlice& slice);

}  // namespace kvcal
