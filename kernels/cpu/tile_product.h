#pragma once

#include <cstdint>
#include <string_view>

#include "quant/half.h"

namespace kvcal::cpu {

/// Instructions that multiply pairs of bfloat16 and add to float32. Only tile_product.cc uses them;
/// everything else is Highway's or oneDNN's.
enum class TileInstructions : uint8_t { kNone, kAvx512Bf16, kAmxBf16 };

/// Those of cpu_class().
TileInstructions tile_instructions();
std::string_view name_of(TileInstructions instructions);

/// c [rows, columns] = start + a · b, or c += a · b. A row of c depends only on its row of a, and
/// its order of summation only on steps.
struct TileProduct {
  const BF16* a = nullptr;  ///< [rows, steps]
  int64_t a_stride = 0;     ///< in elements
  /// [rows, steps] with a_stride: rounding errors of a, whose exact values are a + a_rest; both are
  /// multiplied by b. Null: only a.
  const BF16* a_rest = nullptr;
  /// [steps / 2, columns]: the elements of steps 2i (low half) and 2i + 1 of a column.
  const uint32_t* b = nullptr;
  int64_t b_stride = 0;  ///< in pairs
  float* c = nullptr;
  int64_t c_stride = 0;
  int64_t rows = 0;     ///< a multiple of kTileRows; without AMX, of 8
  int64_t columns = 0;  ///< a multiple of kTileColumns
  int64_t steps = 0;    ///< a multiple of kTileSteps
  /// [columns], equal for every row; with start_stride [rows, 16], equal for every column; null:
  /// zero.
  const float* start = nullptr;
  int64_t start_stride = 0;
  bool accumulate = false;  ///< adds to c; start is not read
};
constexpr int64_t kTileRows = 16, kTileColumns = 32, kTileSteps = 32;

/// Allows this thread to multiply tiles during its lifetime; no other library may run in it.
class TileSession {
 public:
  explicit TileSession(TileInstructions instructions);
  ~TileSession();
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  void multiply(const TileProduct& product) const;

 private:
  TileInstructions instructions_;
};

}  // namespace kvcal::cpu
