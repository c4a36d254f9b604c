#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/number.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/float_gemm.cc"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>

#include "kernels/cpu/rows-inl.h"

#ifndef KVCAL_KERNELS_CPU_FLOAT_GEMM_ONCE
#define KVCAL_KERNELS_CPU_FLOAT_GEMM_ONCE
namespace kvcal::cpu {

/// Steps, elements of the depth, that are summed in registers before the sums are stored: as many
/// rows of x as registers take stay in half a level 1 cache of 32 KiB while all columns pass.
constexpr int64_t kSumSteps = 320;
constexpr int64_t kMostSumRows = 14, kMostSumColumns = 32;
/// Whole groups of the rows whose sums registers hold, 14 with AVX-512 and 6 with AVX2; and a width
/// with which a part of a panel stays in a level 2 cache while they pass.
constexpr int64_t kFloatGemmTallest = 224, kFloatGemmMaxWidth = 256;
/// Cache lines that are fetched into the level 2 cache with so many steps.
constexpr int64_t kFetchLines = 4, kFetchSteps = 16;

/// Sums of a few rows and of one group of columns.
struct SumBlock {
  const float* x = nullptr;  ///< [rows, steps] with row stride x_stride
  int64_t x_stride = 0;
  const std::byte* weights = nullptr;  ///< [steps, columns]
  /// What is needed later: kFetchLines cache lines for every kFetchSteps steps, fetched into the
  /// level 2 cache.
  const std::byte* later = nullptr;
  int64_t rows = 0, steps = 0;
  const float* start = nullptr;  ///< [columns], what sums begin with; null: out
  float* out = nullptr;          ///< [rows, columns]
  int64_t stride = 0;
};

/// How weights of one instruction set are packed.
struct SumShape {
  int64_t rows = 0;     ///< most of them whose sums registers hold
  int64_t columns = 0;  ///< in a group
  /// Widest panel for rows of x that are copied: the more columns, the fewer copies.
  int64_t copied_width = 0;
};

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Two vectors of sums a row; two of weights and one of x are left.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int64_t kRegisterRows = kMostSumRows;
#else
constexpr int64_t kRegisterRows = 6;
#endif
/// With AVX-512 a level 2 cache has 1 MiB or more, else often a quarter.
constexpr int64_t kCopiedWidth = (HWY_TARGET <= HWY_AVX3 ? 2 : 1) * kFloatGemmMaxWidth;
constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(DF()));
static_assert(2 * kHalf <= kMostSumColumns);

/// Steps whose weights are fetched ahead, about 450 cycles of products with AVX-512, 200 with AVX2.
constexpr int64_t kAhead = 32;

SumShape sum_shape() {
  return {.rows = kRegisterRows, .columns = 2 * kHalf, .copied_width = kCopiedWidth};
}

/// A step's weights of a group, float32.
struct FloatColumns {
  static constexpr int64_t kBytes = 2 * kHalf * 4;
  static HWY_INLINE void load(const std::byte* from, VF& left, VF& right) {
    const auto* floats = reinterpret_cast<const float*>(from);
    left = hn::Load(DF(), floats);
    right = hn::Load(DF(), floats + kHalf);
  }
};

/// Pairs of bfloat16: low halves hold the left columns of a group, high ones the right ones.
struct HalfColumns {
  static constexpr int64_t kBytes = 2 * kHalf * 2;
  static HWY_INLINE void load(const std::byte* from, VF& left, VF& right) {
    const VU pairs = hn::Load(DU(), reinterpret_cast<const uint32_t*>(from));
    left = hn::BitCast(DF(), hn::ShiftLeft<16>(pairs));
    right = hn::BitCast(DF(), hn::And(pairs, hn::Set(DU(), 0xffff0000u)));
  }
};

/// Adds one product after the other, by a fused multiply-add each: a sum depends on its row and
/// column alone, and has the bytes of every processor that has such instructions. Loops over rows
/// are written out, so that sums never leave the registers.
template <class Columns, int64_t... kRow>
HWY_INLINE void add_products(const SumBlock& block, std::integer_sequence<int64_t, kRow...>) {
  VF left_sums[sizeof...(kRow)], right_sums[sizeof...(kRow)];
  const float* from = block.start ? block.start : block.out;
  const int64_t from_stride = block.start ? 0 : block.stride;
  ((left_sums[kRow] = hn::LoadU(DF(), from + kRow * from_stride)), ...);
  ((right_sums[kRow] = hn::LoadU(DF(), from + kRow * from_stride + kHalf)), ...);
  const std::byte *weights = block.weights, *later = block.later;
  // Every third row has a pointer, since an address may have the stride once or twice: five
  // registers are enough.
  const int64_t stride = block.x_stride;
  const float* const x[] = {(block.x + kRow / 3 * 3 * stride)...};
  for (int64_t k = 0; k < block.steps;) {
    for (int64_t line = 0; line < kFetchLines; ++line, later += 64) __builtin_prefetch(later, 0, 2);
    for (const int64_t end = std::min(k + kFetchSteps, block.steps); k < end;
         ++k, weights += Columns::kBytes) {
      VF left, right;
      Columns::load(weights, left, right);
      for (int64_t at = 0; at < Columns::kBytes; at += 64)
        hwy::Prefetch(weights + kAhead * Columns::kBytes + at);
      const auto add = [&](int64_t row) HWY_ATTR {
        const VF factor = set(x[row][row % 3 * stride + k]);
        left_sums[row] = hn::MulAdd(factor, left, left_sums[row]);
        right_sums[row] = hn::MulAdd(factor, right, right_sums[row]);
      };
      (add(kRow), ...);
    }
  }
  (hn::StoreU(left_sums[kRow], DF(), block.out + kRow * block.stride), ...);
  (hn::StoreU(right_sums[kRow], DF(), block.out + kRow * block.stride + kHalf), ...);
}

template <class Columns, int64_t kRows>
HWY_NOINLINE void add_products_of(const SumBlock& block) {
  add_products<Columns>(block, std::make_integer_sequence<int64_t, kRows>());
}

template <class Columns, int64_t... kRows>
void add_rows(const SumBlock& block, std::integer_sequence<int64_t, kRows...>) {
  static_cast<void>(
      ((block.rows == kRows + 1 && (add_products_of<Columns, kRows + 1>(block), true)) || ...));
}

void sum_products(const SumBlock& block, ComputeType type) {
  constexpr auto kAll = std::make_integer_sequence<int64_t, kRegisterRows>();
  type == ComputeType::kFloat32 ? add_rows<FloatColumns>(block, kAll)
                                : add_rows<HalfColumns>(block, kAll);
}

/// Writes rows of weights, 32-bit numbers, as columns [steps, columns] at out.
void pack_sum_columns(const float* const* rows, int64_t count, int64_t steps, float* out,
                      int64_t columns) {
  int64_t row = 0;
  for (; row + 4 <= count; row += 4) rows_to_columns(rows + row, steps, out + row, columns);
  for (; row < count; ++row)
    for (int64_t k = 0; k < steps; ++k)
      std::memcpy(out + k * columns + row, rows[row] + k, sizeof(float));
}

void floats_of_halves(const BF16* in, int64_t count, float* out) {
  for_vectors(count, [&](auto at) HWY_ATTR { at.store(at.load(in), out); });
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {

HWY_EXPORT(sum_shape);
HWY_EXPORT(sum_products);
HWY_EXPORT(pack_sum_columns);
HWY_EXPORT(floats_of_halves);

namespace {

Gemm::Layout float_layout(const PanelShape& shape) {
  const int64_t columns = HWY_DYNAMIC_DISPATCH(sum_shape)().columns;
  return {.shape = shape,
          .panel_bytes = static_cast<size_t>(shape.depth * round_up(shape.width, columns)) *
                         bytes_of(shape.type),
          .pack_step = columns,
          .x_stride = shape.depth,
          .out_stride = shape.width,
          .runs_in_place = true};
}

/// Rows of float32 are read in place, except those that lie whole pages apart: they share the lines
/// of a level 1 cache, which has room for eight or twelve of them.
bool copies_rows(ComputeType type, int64_t depth) {
  constexpr int64_t kPageFloats = 4096 / sizeof(float);
  return type != ComputeType::kFloat32 || depth % kPageFloats == 0;
}

/// A panel has, for one part of the depth after the other, groups of columns [steps, columns].
class FloatGemm : public Gemm {
 public:
  explicit FloatGemm(const PanelShape& shape)
      : Gemm(float_layout(shape)), sums_(HWY_DYNAMIC_DISPATCH(sum_shape)()) {
    const int64_t parts = (shape.depth + kSumSteps - 1) / kSumSteps;
    if (parts > 0) together_ = (shape.depth + parts - 1) / parts;
    copies_rows_ = copies_rows(shape.type, shape.depth);
  }

  void pack(int64_t first, int64_t count, const void* rows, std::byte* panel, int) const override {
    for (int64_t step = 0; step < depth(); step += together_)
      pack_steps({static_cast<const std::byte*>(rows), count}, step, group_at(panel, step, first));
  }

  int64_t height_for(int64_t rows) const override { return std::min(rows, kFloatGemmTallest); }

  void run(int64_t height, const void* x, const std::byte* panel, const GemmResult& result,
           int) const override {
    const int64_t groups = (height + sums_.rows - 1) / sums_.rows;
    const int64_t together = (height + groups - 1) / groups;
    alignas(64) float copies[kMostSumRows * kSumSteps];
    for (int64_t step = 0; step < depth(); step += together_) {
      const int64_t steps = steps_at(step);
      const std::byte* weights = group_at(panel, step, 0);
      Fetch fetch = fetch_beside(step, height, panel);
      for (int64_t row = 0; row < height; row += together) {
        const int64_t here = std::min(together, height - row);
        SumBlock block = place_rows(x, row * depth() + step, here, steps, copies);
        for (int64_t m = row + here; copies_rows_ && m < std::min(height, row + here + together);
             ++m)
          fetch_row(x, m * depth() + step, steps);
        GemmResult at = result;
        at.out += row * result.stride;
        if (step > 0) at.accumulate = true;
        sum_columns(block, weights, at, fetch);
      }
    }
  }

 private:
  /// Rows of weights, of the shape's type and depth.
  struct Rows {
    const std::byte* data = nullptr;
    int64_t count = 0;
  };

  /// The part of the weights that comes next, brought into the level 2 cache by the last of the
  /// calls that sum the part before it: their first pass over it would wait for memory.
  struct Fetch {
    const std::byte* part = nullptr;  ///< null: nothing comes next
    int64_t at = 0;                   ///< of the next call's lines in the part, negative: too early
  };

  int64_t depth() const { return layout_.shape.depth; }
  int64_t steps_at(int64_t step) const { return std::min(together_, depth() - step); }
  int64_t packed_width() const { return round_up(layout_.shape.width, sums_.columns); }
  bool is_float() const { return layout_.shape.type == ComputeType::kFloat32; }
  size_t element_bytes() const { return bytes_of(layout_.shape.type); }
  template <class Byte>
  Byte* group_at(Byte* panel, int64_t step, int64_t column) const {
    return panel +
           static_cast<size_t>(step * packed_width() + column * steps_at(step)) * element_bytes();
  }

  static int64_t fetched_bytes(int64_t steps) { return steps / kFetchSteps * kFetchLines * 64; }

  /// Few rows read each weight once: those are read in order then, without this.
  Fetch fetch_beside(int64_t step, int64_t height, const std::byte* panel) const {
    const int64_t next = step + together_;
    if (next >= depth() || height <= sums_.rows) return {};
    const int64_t bytes = steps_at(next) * packed_width() * static_cast<int64_t>(element_bytes());
    const int64_t calls = (height + sums_.rows - 1) / sums_.rows * (packed_width() / sums_.columns);
    return {.part = group_at(panel, next, 0), .at = bytes - calls * fetched_bytes(steps_at(step))};
  }

  /// Rows of x from an element on, in place or copied.
  SumBlock place_rows(const void* x, int64_t element, int64_t rows, int64_t steps,
                      float* copies) const {
    SumBlock block{.rows = rows, .steps = steps};
    block.x = copies_rows_ ? copies : static_cast<const float*>(x) + element;
    block.x_stride = copies_rows_ ? kSumSteps : depth();
    for (int64_t m = 0; copies_rows_ && m < rows; ++m)
      load_row(x, element + m * depth(), steps, copies + m * kSumSteps);
    return block;
  }

  void load_row(const void* x, int64_t element, int64_t count, float* out) const {
    if (is_float())
      std::memcpy(out, static_cast<const float*>(x) + element,
                  static_cast<size_t>(count) * sizeof(float));
    else
      HWY_DYNAMIC_DISPATCH(floats_of_halves)(static_cast<const BF16*>(x) + element, count, out);
  }

  /// Brings what load_row reads next into a cache while sums run.
  void fetch_row(const void* x, int64_t element, int64_t count) const {
    const auto* row =
        static_cast<const std::byte*>(x) + static_cast<size_t>(element) * element_bytes();
    for (size_t at = 0; at < static_cast<size_t>(count) * element_bytes(); at += 64)
      hwy::Prefetch(row + at);
  }

  void sum_columns(SumBlock block, const std::byte* weights, const GemmResult& result,
                   Fetch& fetch) const {
    static constexpr std::array<float, kMostSumColumns> kZeros{};
    const int64_t width = layout_.shape.width;
    const size_t group_bytes = static_cast<size_t>(block.steps * sums_.columns) * element_bytes();
    for (int64_t column = 0; column < width; column += sums_.columns, weights += group_bytes) {
      block.weights = weights;
      block.later = fetch.part && fetch.at >= 0 ? fetch.part + fetch.at : weights;
      fetch.at += fetched_bytes(block.steps);
      block.out = result.out + column;
      block.stride = result.stride;
      block.start = result.accumulate ? nullptr
                    : result.start    ? result.start + column
                                      : kZeros.data();
      if (column + sums_.columns <= width)
        HWY_DYNAMIC_DISPATCH(sum_products)(block, layout_.shape.type);
      else
        sum_last(block, width - column);
    }
  }

  /// Sums of a group of which only the first columns exist.
  void sum_last(SumBlock block, int64_t columns) const {
    float* const out = block.out;
    const int64_t stride = block.stride;
    const auto bytes = static_cast<size_t>(columns) * sizeof(float);
    std::array<float, kMostSumRows * kMostSumColumns> sums{};
    for (int64_t m = 0; m < block.rows; ++m)
      std::memcpy(sums.data() + m * sums_.columns, block.start ? block.start : out + m * stride,
                  bytes);
    block.start = nullptr;
    block.out = sums.data();
    block.stride = sums_.columns;
    HWY_DYNAMIC_DISPATCH(sum_products)(block, layout_.shape.type);
    for (int64_t m = 0; m < block.rows; ++m)
      std::memcpy(out + m * stride, sums.data() + m * sums_.columns, bytes);
  }

  void pack_steps(const Rows& rows, int64_t step, std::byte* out) const {
    const int64_t steps = steps_at(step);
    if (rows.count < sums_.columns)
      std::memset(out, 0, static_cast<size_t>(steps * sums_.columns) * element_bytes());
    std::array<const float*, kMostSumColumns> from;
    if (is_float()) {
      for (int64_t i = 0; i < rows.count; ++i)
        from[static_cast<size_t>(i)] =
            reinterpret_cast<const float*>(rows.data) + i * depth() + step;
      return HWY_DYNAMIC_DISPATCH(pack_sum_columns)(from.data(), rows.count, steps,
                                                    reinterpret_cast<float*>(out), sums_.columns);
    }
    // Pairs of a left and a right column move as if they were float32.
    const int64_t half = sums_.columns / 2, pairs = std::min(half, rows.count);
    std::array<uint32_t, kMostSumColumns / 2 * kSumSteps> joined;
    const auto* halves = reinterpret_cast<const BF16*>(rows.data) + step;
    for (int64_t i = 0; i < pairs; ++i) {
      uint32_t* to = joined.data() + i * kSumSteps;
      from[static_cast<size_t>(i)] = reinterpret_cast<const float*>(to);
      const BF16 *left = halves + i * depth(), *right = halves + (half + i) * depth();
      const bool has_right = half + i < rows.count;
      for (int64_t k = 0; k < steps; ++k)
        to[k] = left[k].bits | (has_right ? uint32_t{right[k].bits} << 16 : 0);
    }
    HWY_DYNAMIC_DISPATCH(pack_sum_columns)
    (from.data(), pairs, steps, reinterpret_cast<float*>(out), half);
  }

  SumShape sums_;
  int64_t together_ = 1;  ///< steps of the depth, about equal parts of it
  bool copies_rows_ = false;
};

}  // namespace

GemmBlocking float_gemm_blocking(ComputeType type, int64_t depth) {
  return {.tallest = kFloatGemmTallest,
          .rows = kFloatGemmTallest,
          .max_width = copies_rows(type, depth) ? HWY_DYNAMIC_DISPATCH(sum_shape)().copied_width
                                                : kFloatGemmMaxWidth};
}

std::unique_ptr<Gemm> make_float_gemm(const PanelShape& shape) {
  KVCAL_CHECK(shape.type != ComputeType::kFloat16);
  return std::make_unique<FloatGemm>(shape);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
