#include "quant/weight_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "core/number.h"
#include "quant/half.h"
#include "quant/observer.h"
#include "quant/range_search.h"
#include "quant/weight_loops.h"

namespace kvcal {
namespace {

using weight_loops::bytes_of_element;
using weight_loops::Coding;
using weight_loops::Run;

/// Approximate number of elements for one index of a parallel loop.
constexpr uint64_t kChunk = uint64_t{1} << 18;
/// Number of elements in an error buffer, and of sums computed side by side.
constexpr size_t kBuffer = 1024;
constexpr size_t kLanes = 8;

uint32_t infinity_of(DType dtype) {
  return dtype == DType::kF32 ? 0x7f800000u : dtype == DType::kF16 ? 0x7c00u : 0x7f80u;
}
float value_of(DType dtype, uint32_t bits) {
  if (dtype == DType::kF32) return float_of(bits);
  const auto half = static_cast<uint16_t>(bits);
  return dtype == DType::kF16 ? to_float(F16{half}) : to_float(BF16{half});
}
Run run_of(const TensorView& weight, uint64_t first, uint64_t count) {
  return {weight.bytes.data() + first * bytes_of_element(weight.dtype), weight.dtype, count};
}

void for_each_index(ThreadPool* pool, uint64_t count,
                    const std::function<void(uint64_t index, size_t thread)>& body) {
  if (pool)
    return pool->parallel_for(static_cast<int64_t>(count), [&](int64_t index, int thread) {
      body(static_cast<uint64_t>(index), static_cast<size_t>(thread));
    });
  for (uint64_t index = 0; index < count; ++index) body(index, 0);
}

/// The weight in chunks of kChunk elements; body(chunk, first, count, thread).
template <class Body>
void for_each_chunk(uint64_t elements, ThreadPool* pool, const Body& body) {
  for_each_index(pool, (elements + kChunk - 1) / kChunk, [&](uint64_t chunk, size_t thread) {
    const uint64_t first = chunk * kChunk;
    body(chunk, first, std::min(kChunk, elements - first), thread);
  });
}

/// Calls body(scale, first, count) for the pieces of rows in one block each. One thread visits all
/// pieces of a block, from its first row to its last.
template <class Body>
void for_each_piece(const ScaleGrid& grid, ThreadPool* pool, const Body& body) {
  const auto band = static_cast<uint64_t>(std::min(grid.block_rows, grid.rows) * grid.columns);
  const auto bands_together = static_cast<int64_t>(std::max<uint64_t>(1, kChunk / band));
  const int64_t together = bands_together * grid.block_rows;
  for_each_index(pool, static_cast<uint64_t>((grid.rows + together - 1) / together),
                 [&](uint64_t index, size_t) {
                   const int64_t begin = static_cast<int64_t>(index) * together;
                   const int64_t end = std::min(grid.rows, begin + together);
                   for (int64_t row = begin; row < end; ++row)
                     for (int64_t at = 0; at < grid.columns; at += grid.block_columns)
                       body(static_cast<size_t>(grid.scale_of(row, at)),
                            static_cast<uint64_t>(row * grid.columns + at),
                            static_cast<uint64_t>(std::min(grid.block_columns, grid.columns - at)));
                 });
}

/// A value for each scale: fold joins, in the order of elements, those that value_of(scale, run)
/// gives for pieces of its block.
template <class Value, class ValueOf, class Fold>
std::vector<Value> folded(const TensorView& weight, const ScaleGrid& grid, ThreadPool* pool,
                          const ValueOf& value_of, const Fold& fold) {
  std::vector<Value> values(static_cast<size_t>(grid.num_scales()));
  if (!grid.has_one_scale()) {
    for_each_piece(grid, pool, [&](size_t scale, uint64_t first, uint64_t count) {
      values[scale] = fold(values[scale], value_of(scale, run_of(weight, first, count)));
    });
    return values;
  }
  const uint64_t elements = element_count(weight.shape);
  std::vector<Value> of_chunk((elements + kChunk - 1) / kChunk);
  for_each_chunk(elements, pool, [&](uint64_t chunk, uint64_t first, uint64_t count, size_t) {
    of_chunk[chunk] = value_of(0, run_of(weight, first, count));
  });
  for (const Value value : of_chunk) values[0] = fold(values[0], value);
  return values;
}

[[noreturn]] void fail_at_nonfinite(const TensorView& weight, const ScaleGrid& grid) {
  const uint64_t elements = weight.bytes.size() / bytes_of_element(weight.dtype);
  const uint32_t infinity = infinity_of(weight.dtype);
  for (uint64_t first = 0; first < elements; ++first) {
    const uint32_t magnitude = weight_loops::best().largest_magnitude(run_of(weight, first, 1));
    if (magnitude < infinity) continue;
    const auto columns = static_cast<uint64_t>(grid.columns);
    fail("element [", first / columns, ", ", first % columns, "] is ",
         magnitude == infinity ? "infinite" : "NaN", ", expected finite weights");
  }
  KVCAL_CHECK(false);
  __builtin_unreachable();
}

std::vector<Amax> block_amax(const TensorView& weight, const ScaleGrid& grid, ThreadPool* pool) {
  const std::vector<uint32_t> largest = folded<uint32_t>(
      weight, grid, pool,
      [](size_t, const Run& run) { return weight_loops::best().largest_magnitude(run); },
      [](uint32_t a, uint32_t b) { return std::max(a, b); });
  std::vector<Amax> amax;
  for (const uint32_t bits : largest) {
    if (bits >= infinity_of(weight.dtype)) fail_at_nonfinite(weight, grid);
    amax.push_back({value_of(weight.dtype, bits)});
  }
  return amax;
}

/// Sum of |element - scale x code|^norm, in an order that depends only on the run.
double error_of(const Run& run, const Coding& coding, double norm) {
  std::array<double, kBuffer> powers;
  std::array<double, kLanes> lanes{};
  for (size_t first = 0; first < run.count; first += kBuffer) {
    const size_t count = std::min(kBuffer, run.count - first);
    weight_loops::best().error_powers(
        {run.elements + first * bytes_of_element(run.dtype), run.dtype, count}, coding, norm,
        powers.data());
    std::fill(powers.begin() + static_cast<int64_t>(count),
              powers.begin() + static_cast<int64_t>(round_up(static_cast<int64_t>(count), kLanes)),
              0.0);
    for (size_t i = 0; i < count; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += powers[i + lane];
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// Input of the error sums: for a 16-bit weight with one scale, the count of each magnitude, so
/// that sums need not read the elements again.
class ErrorSums {
 public:
  ErrorSums(const TensorView& weight, const ScaleGrid& grid, ThreadPool* pool)
      : weight_(weight), grid_(grid), pool_(pool) {
    if (grid.has_one_scale() && weight.dtype != DType::kF32) count_magnitudes();
  }

  /// One sum per scale.
  std::vector<double> operator()(std::span<const Scale> scales, bool rounds_quotient,
                                 double norm) const {
    if (!counts_.empty()) return {counted_error({scales[0].value, rounds_quotient}, norm)};
    return folded<double>(
        weight_, grid_, pool_,
        [&](size_t scale, const Run& run) {
          return error_of(run, {scales[scale].value, rounds_quotient}, norm);
        },
        std::plus<>());
  }

 private:
  void count_magnitudes() {
    std::vector<std::vector<uint64_t>> of_thread(
        static_cast<size_t>(pool_ ? pool_->num_threads() : 1));
    for_each_chunk(element_count(weight_.shape), pool_,
                   [&](uint64_t, uint64_t first, uint64_t count, size_t thread) {
                     std::vector<uint64_t>& counts = of_thread[thread];
                     counts.resize(0x8000, 0);
                     const std::byte* const elements = run_of(weight_, first, count).elements;
                     for (uint64_t i = 0; i < count; ++i) {
                       uint16_t bits;
                       std::memcpy(&bits, elements + 2 * i, 2);
                       ++counts[bits & 0x7fffu];
                     }
                   });
    counts_.assign(0x8000, 0);
    for (const std::vector<uint64_t>& counts : of_thread)
      for (size_t i = 0; i < counts.size(); ++i) counts_[i] += counts[i];
  }

  double counted_error(const Coding& coding, double norm) const {
    std::array<uint16_t, kBuffer> magnitudes;
    std::array<double, kBuffer> powers;
    double sum = 0;
    for (size_t first = 0; first < infinity_of(weight_.dtype); first += kBuffer) {
      const size_t count = std::min<size_t>(kBuffer, infinity_of(weight_.dtype) - first);
      for (size_t i = 0; i < count; ++i) magnitudes[i] = static_cast<uint16_t>(first + i);
      const auto bytes = std::as_bytes(std::span(magnitudes));
      weight_loops::best().error_powers({bytes.data(), weight_.dtype, count}, coding, norm,
                                        powers.data());
      for (size_t i = 0; i < count; ++i) sum += static_cast<double>(counts_[first + i]) * powers[i];
    }
    return sum;
  }

  const TensorView& weight_;
  const ScaleGrid& grid_;
  ThreadPool* pool_;
  std::vector<uint64_t> counts_;  ///< of magnitudes by their bits, or empty
};

Scale scale_of(Amax amax, DType dtype, ScaleArithmetic arithmetic) {
  if (arithmetic == ScaleArithmetic::kFloat32) return scale_from(amax, fp8::Format::kE4m3Fn);
  const float scale = rounded_to(dtype, amax.value / fp8::max_value(fp8::Format::kE4m3Fn));
  return {scale == 0.0f ? zero_scale(dtype, arithmetic) : scale};
}

std::vector<Scale> scales_of(std::span<const Amax> amax, DType dtype, ScaleArithmetic arithmetic) {
  std::vector<Scale> scales;
  for (const Amax block : amax) scales.push_back(scale_of(block, dtype, arithmetic));
  return scales;
}

/// Scales of the ranges that the observer mse chooses.
std::vector<Scale> searched_scales(const TensorView& weight, const WeightScales& seen,
                                   const MseOptions& options, ScaleArithmetic arithmetic,
                                   ThreadPool* pool) {
  const bool rounds = arithmetic == ScaleArithmetic::kModelDtype;
  const auto rounded = [&](float value) {
    return rounds ? rounded_to(weight.dtype, value) : value;
  };
  const auto candidate = [&](size_t block, float factor) {
    const float range = rounded(seen.amax[block].value * static_cast<float>(options.expand));
    return scale_of({rounded(range * factor)}, weight.dtype, arithmetic);
  };
  const ErrorSums errors(weight, seen.grid, pool);
  RangeSearch search(options, seen.amax.size());
  std::vector<Scale> scales(seen.amax.size());
  while (const std::optional<float> factor = search.next()) {
    for (size_t block = 0; block < scales.size(); ++block)
      scales[block] = candidate(block, *factor);
    search.tell(errors(scales, rounds, options.norm));
  }
  for (size_t block = 0; block < scales.size(); ++block)
    scales[block] = candidate(block, search.best()[block]);
  return scales;
}

/// amax / 448 where the block's sum of squared errors is smaller than with that scale rounded to
/// the weight's dtype. Rounding to 16 bits may make a scale better or worse by chance; with the
/// better of both, no block has a larger error than with the rounded scale and rounded quotients.
std::vector<Scale> better_scales(const TensorView& weight, const WeightScales& seen,
                                 ThreadPool* pool) {
  std::vector<Scale> scales = scales_of(seen.amax, weight.dtype, ScaleArithmetic::kFloat32);
  const std::vector<Scale> rounded =
      scales_of(seen.amax, weight.dtype, ScaleArithmetic::kModelDtype);
  const ErrorSums errors(weight, seen.grid, pool);
  const std::vector<double> plain = errors(scales, false, 2.0), other = errors(rounded, false, 2.0);
  // Sums that differ by their own rounding count as equal.
  for (size_t block = 0; block < scales.size(); ++block)
    if (plain[block] > 0 && plain[block] >= other[block] * (1 - 1e-12))
      scales[block] = rounded[block];
  return scales;
}

bool searches(const QuantArgs& args) {
  constexpr ArgsRole kRole = ArgsRole::kWeights;
  const std::string name = args.observer.value_or(std::string(default_observer(kRole)));
  const ObserverRow* row = observers().find(name);
  if (!row || !reason_for(row->why_not, kRole).empty())
    fail("observer of weights: found '", name, "', expected memoryless_minmax or mse");
  return row->searches_weights;
}

void check_bytes(const TensorView& weight) {
  if (!is_float(weight.dtype)) fail("found ", weight.dtype, ", expected F16, BF16 or F32");
  const uint64_t bytes = byte_count(weight.shape, weight.dtype);
  if (weight.bytes.size() != bytes)
    fail("found ", weight.bytes.size(), " bytes, expected ", bytes, " for ", weight.shape);
}

}  // namespace

float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return to_float(to_f16(value));
  if (dtype == DType::kBF16) return to_float(to_bf16(value));
  KVCAL_CHECK(dtype == DType::kF32);
  return value;
}

uint32_t bits_in(DType dtype, float value) {
  if (dtype == DType::kF16) return to_f16(value).bits;
  if (dtype == DType::kBF16) return to_bf16(value).bits;
  KVCAL_CHECK(dtype == DType::kF32);
  return bits_of(value);
}

float element_of(const std::byte* bytes, DType dtype, uint64_t index) {
  uint32_t bits = 0;
  std::memcpy(&bits, bytes + index * bytes_of_element(dtype), bytes_of_element(dtype));
  return value_of(dtype, bits);
}

Shape ScaleGrid::scale_shape(Strategy strategy) const {
  if (strategy == Strategy::kTensor) return {1};
  return {grid_rows(), grid_columns()};
}

ScaleGrid scale_grid(const QuantArgs& args, const Shape& weight) {
  if (weight.rank() != 2 || weight[0] <= 0 || weight[1] <= 0)
    fail("shape ", weight, ", expected a matrix with elements");
  const int64_t rows = weight[0], columns = weight[1];
  switch (const Strategy strategy = resolved_strategy(args)) {
    case Strategy::kTensor:
      return {rows, columns, rows, columns};
    case Strategy::kChannel:
      return {rows, columns, 1, columns};
    case Strategy::kBlock:
      if (!args.block_structure || args.block_structure->size() != 2 ||
          std::ranges::min(*args.block_structure) <= 0)
        fail("strategy block: expected block_structure with two positive numbers");
      return {rows, columns, std::min(rows, (*args.block_structure)[0]),
              std::min(columns, (*args.block_structure)[1])};
    case Strategy::kGroup:
    case Strategy::kTensorGroup:
      if (args.group_size.value_or(0) <= 0) fail("strategy group: expected a positive group_size");
      if (columns % *args.group_size != 0)
        fail(columns, " inputs are no whole groups of ", *args.group_size);
      return {rows, columns, 1, *args.group_size};
    default:
      fail("strategy of weights: found ", name_of(strategy),
           ", expected tensor, channel, block, group or tensor_group");
  }
}

std::vector<Amax> weight_amax(const TensorView& weight, const QuantArgs& args, ThreadPool* pool) {
  return in_context(weight.name, [&] {
    check_bytes(weight);
    return block_amax(weight, scale_grid(args, weight.shape), pool);
  });
}

WeightScales weight_scales(const TensorView& weight, const QuantArgs& args,
                           ScaleArithmetic arithmetic, ThreadPool* pool) {
  return in_context(weight.name, [&] {
    check_bytes(weight);
    WeightScales made{scale_grid(args, weight.shape), {}, {}};
    made.amax = block_amax(weight, made.grid, pool);
    if (searches(args)) {
      made.scales =
          searched_scales(weight, made, mse_options(args.observer_kwargs), arithmetic, pool);
      return made;
    }
    const bool has_two = weight.dtype != DType::kF32 && arithmetic == ScaleArithmetic::kFloat32;
    made.scales = has_two ? better_scales(weight, made, pool)
                          : scales_of(made.amax, weight.dtype, arithmetic);
    return made;
  });
}

float zero_scale(DType dtype, ScaleArithmetic arithmetic) {
  if (arithmetic == ScaleArithmetic::kModelDtype && dtype == DType::kF16) return 0x1p-10f;
  if (arithmetic == ScaleArithmetic::kModelDtype && dtype == DType::kBF16) return 0x1p-7f;
  return FLT_EPSILON;
}

WeightCoder::WeightCoder(TensorView weight, const ScaleGrid& grid, std::span<const Scale> scales,
                         ScaleArithmetic arithmetic)
    : weight_(std::move(weight)),
      grid_(grid),
      scales_(scales.begin(), scales.end()),
      rounds_quotient_(arithmetic == ScaleArithmetic::kModelDtype) {
  KVCAL_CHECK(is_float(weight_.dtype));
  KVCAL_CHECK(weight_.shape == Shape({grid_.rows, grid_.columns}));
  KVCAL_CHECK(weight_.bytes.size() == byte_count(weight_.shape, weight_.dtype));
  KVCAL_CHECK(static_cast<int64_t>(scales_.size()) == grid_.num_scales());
  for (const Scale scale : scales_)
    if (!(scale.value > 0) || !std::isfinite(scale.value))
      fail(weight_.name, ": scale ", scale.value, ", expected a positive finite one");
}

void WeightCoder::encode(uint64_t first, std::span<uint8_t> codes) const {
  KVCAL_CHECK(first + codes.size() <= element_count(weight_.shape));
  const auto columns = static_cast<uint64_t>(grid_.columns);
  const auto block_columns = static_cast<uint64_t>(grid_.block_columns);
  for (uint64_t done = 0; done < codes.size();) {
    const uint64_t at = first + done, column = at % columns;
    // Ends at the end of the row's piece in one block, or of the whole range where one scale serves
    // all.
    const uint64_t piece = grid_.has_one_scale()
                               ? codes.size()
                               : std::min(columns - column, block_columns - column % block_columns);
    const uint64_t count = std::min<uint64_t>(piece, codes.size() - done);
    const int64_t scale =
        grid_.scale_of(static_cast<int64_t>(at / columns), static_cast<int64_t>(column));
    const std::byte* const elements =
        weight_.bytes.data() + at * weight_loops::bytes_of_element(weight_.dtype);
    weight_loops::best().encode({elements, weight_.dtype, count},
                                {scales_[static_cast<size_t>(scale)].value, rounds_quotient_},
                                codes.data() + done);
    done += count;
  }
}

}  // namespace kvcal
