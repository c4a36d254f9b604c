#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace kvcal {

/// A matrix [rows, width] whose elements are decoded when they are read.
class RowDecoder {
 public:
  virtual ~RowDecoder() = default;
  virtual int64_t width() const = 0;
  /// Decodes rows [first, first + count) to float32, row-major. Thread-safe. Throws Error naming
  /// the tensor where a code is no number.
  virtual void decode(int64_t first, int64_t count, float* out) const = 0;
};

/// Rows [first, first + count) of a matrix. Borrows it.
struct DecodedRows {
  const RowDecoder* decoder = nullptr;
  int64_t first = 0, count = 0;
};

/// Decodes rows [first, first + count) of the concatenated parts.
void decode_rows(std::span<const DecodedRows> parts, int64_t first, int64_t count, float* out);

/// Shape of the matrix that Backend::pack makes from its parts.
struct PackShape {
  int64_t out_features = 0;
  int64_t in_features = 0;
};

/// Checks the parts of Backend::pack: at least one, rank 2, equal width, F32, F16 or BF16, with the
/// bytes that the shape needs. Throws Error naming the faulty part.
PackShape checked_pack_shape(std::span<const TensorView> parts);

/// Shape of the matrix that Backend::pack_decoded makes. KVCAL_CHECKs that there is a part and that
/// all are equally wide.
PackShape checked_pack_shape(std::span<const DecodedRows> parts);

/// Shape of the matrix that Backend::pack_fp8 makes from its parts, and its scales.
struct Fp8PackShape {
  PackShape shape;
  std::vector<float> scales;  ///< one where all rows share it, else [out_features]
  bool scale_per_row() const { return scales.size() > 1; }
};

/// Checks the parts as checked_pack_shape does, but for F8_E4M3, and the scales: one a part or one
/// an output row, finite, not negative. Throws Error naming the fault.
Fp8PackShape checked_fp8_pack(std::span<const TensorView> parts, std::span<const float> scales);

/// Throws Error unless the tensor is a matrix of F32, F16 or BF16 whose bytes match its shape.
void check_float_matrix(const TensorView& view);

}  // namespace kvcal
