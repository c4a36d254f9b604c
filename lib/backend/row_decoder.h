#pragma once

#include <cstdint>
#include <span>

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

}  // namespace kvcal
