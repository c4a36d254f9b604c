#include "kernels/cpu/tile_product.h"

#include "core/error.h"
#include "kernels/cpu/cpu_class.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvcal::cpu {

#if defined(__x86_64__)
namespace {

/// Operand of ldtilecfg. Source: Intel SDM, volume 1, "Advanced Matrix Extensions".
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// GCC's own intrinsic declares only eight of the bytes to the compiler.
void load_tile_config() {
  const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
void release_tiles() {
  asm volatile("tilerelease" ::: "memory");
}

const float* start_of(const TileProduct& p, int64_t row, int64_t column) {
  if (!p.start) return nullptr;
  return p.start_stride > 0 ? p.start + row * p.start_stride : p.start + column;
}

/// Tiles 0 and 1 (and 2 and 3 for the second 16 rows) hold sums, 4 and 5 rows of a, 6 and 7 of b.
template <bool kTwoRows>
__attribute__((target("amx-tile,amx-bf16"))) void multiply_block(const TileProduct& p,
                                                                 const BF16* a, const uint32_t* b,
                                                                 float* c, const float* start) {
  const int64_t a_bytes = p.a_stride * 2, b_bytes = p.b_stride * 4, c_bytes = p.c_stride * 4;
  float* below = c + kTileRows * p.c_stride;
  if (p.accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    if (kTwoRows) _tile_loadd(2, below, c_bytes);
    if (kTwoRows) _tile_loadd(3, below + 16, c_bytes);
  } else if (start) {
    const int64_t start_bytes = p.start_stride * 4;  // 0: one row again and again
    const float* right = p.start_stride > 0 ? start : start + 16;
    const int64_t second = kTileRows * p.start_stride;
    _tile_loadd(0, start, start_bytes);
    _tile_loadd(1, right, start_bytes);
    if (kTwoRows) _tile_loadd(2, start + second, start_bytes);
    if (kTwoRows) _tile_loadd(3, right + second, start_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (kTwoRows) _tile_zero(2);
    if (kTwoRows) _tile_zero(3);
  }
  const BF16* rest = p.a_rest ? p.a_rest + (a - p.a) : nullptr;
  for (int64_t step = 0; step < p.steps; step += kTileSteps) {
    const uint32_t* pairs = b + step / 2 * p.b_stride;
    _tile_loadd(6, pairs, b_bytes);
    _tile_loadd(4, a + step, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, pairs + 16, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    if (kTwoRows) _tile_loadd(5, a + kTileRows * p.a_stride + step, a_bytes);
    if (kTwoRows) _tile_dpbf16ps(2, 5, 6);
    if (kTwoRows) _tile_dpbf16ps(3, 5, 7);
    if (!rest) continue;
    _tile_loadd(4, rest + step, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (kTwoRows) _tile_loadd(5, rest + kTileRows * p.a_stride + step, a_bytes);
    if (kTwoRows) _tile_dpbf16ps(2, 5, 6);
    if (kTwoRows) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  if (kTwoRows) _tile_stored(2, below, c_bytes);
  if (kTwoRows) _tile_stored(3, below + 16, c_bytes);
}

void multiply_amx(const TileProduct& p) {
  const int64_t blocks = (p.rows + 2 * kTileRows - 1) / (2 * kTileRows);
  for (int64_t column = 0; column < p.columns; column += kTileColumns) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = block * 2 * kTileRows;
      const auto multiply =
          row + 2 * kTileRows <= p.rows ? multiply_block<true> : multiply_block<false>;
      multiply(p, p.a + row * p.a_stride, p.b + column, p.c + row * p.c_stride + column,
               start_of(p, row, column));
    }
  }
}

/// Eight rows by 32 columns: 16 sums of 32 registers.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void multiply_rows(
    const TileProduct& p, const BF16* a, const uint32_t* b, float* c, const float* start) {
  constexpr int64_t kRows = 8;
  __m512 sums[kRows][2];
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t i = 0; i < 2; ++i)
      sums[m][i] =
          p.accumulate ? _mm512_loadu_ps(c + m * p.c_stride + 16 * i)
          : start ? _mm512_loadu_ps(start + m * p.start_stride + (p.start_stride > 0 ? 0 : 16 * i))
                  : _mm512_setzero_ps();
  for (const BF16* part : {a, p.a_rest ? p.a_rest + (a - p.a) : nullptr}) {
    if (!part) break;
    for (int64_t pair = 0; pair < p.steps / 2; ++pair) {
      const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + pair * p.b_stride));
      const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + pair * p.b_stride + 16));
      for (int64_t m = 0; m < kRows; ++m) {
        int32_t both = 0;
        __builtin_memcpy(&both, part + m * p.a_stride + 2 * pair, sizeof both);
        const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
        sums[m][0] = _mm512_dpbf16_ps(sums[m][0], x, b0);
        sums[m][1] = _mm512_dpbf16_ps(sums[m][1], x, b1);
      }
    }
  }
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t i = 0; i < 2; ++i) _mm512_storeu_ps(c + m * p.c_stride + 16 * i, sums[m][i]);
}

void multiply_avx512(const TileProduct& p) {
  for (int64_t column = 0; column < p.columns; column += kTileColumns)
    for (int64_t row = 0; row < p.rows; row += 8)
      multiply_rows(p, p.a + row * p.a_stride, p.b + column, p.c + row * p.c_stride + column,
                    start_of(p, row, column));
}

}  // namespace

TileSession::TileSession(TileInstructions instructions) : instructions_(instructions) {
  if (instructions_ == TileInstructions::kAmxBf16) load_tile_config();
}
TileSession::~TileSession() {
  if (instructions_ == TileInstructions::kAmxBf16) release_tiles();
}
void TileSession::multiply(const TileProduct& product) const {
  instructions_ == TileInstructions::kAmxBf16 ? multiply_amx(product) : multiply_avx512(product);
}

#else
TileSession::TileSession(TileInstructions instructions) : instructions_(instructions) {}
TileSession::~TileSession() = default;
void TileSession::multiply(const TileProduct&) const {
  KVCAL_CHECK(instructions_ != TileInstructions::kNone);
}
#endif

TileInstructions tile_instructions() {
  switch (cpu_class()) {
    case CpuClass::kAmx:
      return TileInstructions::kAmxBf16;
    case CpuClass::kAvx512Bf16:
      return TileInstructions::kAvx512Bf16;
    default:
      return TileInstructions::kNone;
  }
}

std::string_view name_of(TileInstructions instructions) {
  constexpr std::string_view kNames[] = {"", "avx512_bf16", "amx_bf16"};
  return kNames[static_cast<size_t>(instructions)];
}

}  // namespace kvcal::cpu
