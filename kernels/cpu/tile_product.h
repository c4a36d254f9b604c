#pragma once

#include <cstdint>
#include <string_view>

#include "quant/half.h"

namespace kvcal::cpu {

/// Instructions that multiply pairs of bfloat16 and add to float32. The only place that knows them
/// is tile_product.cc; everything else is Highway's or oneDNN's.
enum class TileInstructions : uint8_t { kNone, kAvx512Bf16, kAmxBf16 };

/// Tile instructions that processor and system support, best first.
TileInstructions tile_instructions();
std::string_view name_of(TileInstructions instructions);

/// c [rows, columns] = start + a · b, or c += a · b. A row of c depends on its row of a alone, and
/// is summed in an order that only the steps decide.
struct TileProduct {
  const BF16* a = nullptr;  ///< [rows, steps]
  int64_t a_stride = 0;     ///< in elements
  /// [rows, steps] with a_stride: what a was rounded from is a + a_rest, and both are multiplied by
  /// b. Null: a alone.
  const BF16* a_rest = nullptr;
  /// [steps / 2, columns]: elements 2i (low half) and 2i + 1 of a column's steps.
  const uint32_t* b = nullptr;
  int64_t b_stride = 0;  ///< in pairs
  float* c = nullptr;
  int64_t c_stride = 0;
  int64_t rows = 0;     ///< a multiple of kTileRows
  int64_t columns = 0;  ///< a multiple of kTileColumns
  int64_t steps = 0;    ///< a multiple of kTileSteps
  /// [columns], the same for every row; with start_stride [rows, 16], the same for every column;
  /// null: zero.
  const float* start = nullptr;
  int64_t start_stride = 0;
  bool accumulate = false;  ///< start is not read
};
constexpr int64_t kTileRows = 16, kTileColumns = 32, kTileSteps = 32;

/// While it lives, this thread may multiply tiles; other libraries may not run in it meanwhile.
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
