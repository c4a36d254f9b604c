#include "quant/weight_packer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "quant/packed_bits.h"
#include "quant/weight_loops.h"

namespace kvcal {
namespace {

struct Row {
  CompressedFormat storage;
  bool (*holds)(const QuantArgs& weights, bool has_inputs);
};

bool is_mx(const QuantArgs& args) {
  return args.type == QuantType::kFloat && args.group_size == 32 &&
         args.scale_dtype == "torch.uint8";
}

// In the order in which compressed-tensors asks its formats.
constexpr Row kRows[] = {
    {{.format = "mxfp4-pack-quantized",
      .codes = "weight_packed",
      .dtype = DType::kU8,
      .scales = ScaleDType::kE8m0,
      .is_packed = true},
     [](const QuantArgs& args, bool) { return is_mx(args) && args.num_bits == 4; }},
    {{.format = "mxfp6-pack-quantized",
      .codes = "weight_packed",
      .dtype = DType::kU8,
      .scales = ScaleDType::kE8m0,
      .is_packed = true},
     [](const QuantArgs& args, bool) { return is_mx(args) && args.num_bits == 6; }},
    {{.format = "mxfp8-quantized", .codes = "weight", .scales = ScaleDType::kE8m0},
     [](const QuantArgs& args, bool) { return is_mx(args) && args.num_bits == 8; }},
    {{.format = "nvfp4-pack-quantized",
      .codes = "weight_packed",
      .dtype = DType::kU8,
      .scales = ScaleDType::kE4m3,
      .is_packed = true},
     [](const QuantArgs& args, bool) {
       return args.type == QuantType::kFloat && args.num_bits == 4;
     }},
    {{.format = "int-quantized", .codes = "weight", .dtype = DType::kI8},
     [](const QuantArgs& args, bool has_inputs) {
       return args.type == QuantType::kInt && has_inputs;
     }},
    {{.format = "pack-quantized",
      .codes = "weight_packed",
      .dtype = DType::kI32,
      .is_packed = true,
      .is_offset = true,
      .has_shape = true},
     [](const QuantArgs& args, bool) { return args.type == QuantType::kInt; }},
    {{.format = "float-quantized", .codes = "weight"},
     [](const QuantArgs&, bool has_inputs) { return has_inputs; }},
    {{.format = "naive-quantized", .codes = "weight"}, [](const QuantArgs&, bool) { return true; }},
};

}  // namespace

const CompressedFormat& storage_of(const QuantArgs& weights,
                                   const std::optional<QuantArgs>& inputs) {
  KVCAL_CHECK(weights.num_bits >= 2 && weights.num_bits <= 8);
  KVCAL_CHECK(weights.type == QuantType::kInt || weights.num_bits == 4 || weights.num_bits == 8 ||
              (weights.num_bits == 6 && is_mx(weights)));
  for (const Row& row : kRows)
    if (row.holds(weights, inputs.has_value())) return row.storage;
  KVCAL_CHECK(false);
  __builtin_unreachable();
}

namespace {

using weight_loops::bytes_of_element;
using weight_loops::Loops;
using weight_loops::Run;

/// Number of codes that fill whole words of 32 bits, for any number of bits.
constexpr int64_t kUnit = 32;
/// Number of codes that are made at a time, of a row.
constexpr int64_t kCodesTogether = 1024;
/// Scale of a group of zeros, where scales are E4M3. Source: compressed-tensors `_get_dtype_eps`.
constexpr float kZeroE4m3Scale = 0.125f;

/// What a type of floats of so many bits adds to the coding of weights.
struct FloatCodes {
  int bits;
  float max;
  int largest_exponent;  ///< of max
  /// Mantissa from which a group's magnitude counts as the next power of two. Source:
  /// compressed-tensors 0.20.1 `generate_mx_scales`.
  float rounded_up_from;
  void (*Loops::*encode)(const Run&, const weight_loops::Coding&, uint8_t*);
};
constexpr FloatCodes kFloatCodes[] = {
    {4, e2m1::kMax, 2, 1.75f, &Loops::encode_e2m1},
    {6, e2m3::kMax, 2, 1.9375f, &Loops::encode_e2m3},
    {8, fp8::max_value(fp8::Format::kE4m3Fn), 8, 1.75f, &Loops::encode},
};

const FloatCodes& float_codes_of(const QuantArgs& args) {
  const auto* row = std::ranges::find(kFloatCodes, args.num_bits, &FloatCodes::bits);
  KVCAL_CHECK(row != std::end(kFloatCodes));
  return *row;
}

/// Half the distance from the lowest to the highest code: what a magnitude is divided by.
float half_range(const QuantArgs& args) {
  if (args.type == QuantType::kInt) return (std::exp2(static_cast<float>(args.num_bits)) - 1) / 2;
  return float_codes_of(args).max;
}

float or_zero_scale(float scale, DType dtype) {
  return scale == 0.0f ? zero_scale(dtype, ScaleArithmetic::kModelDtype) : scale;
}

/// Scale of all groups of an NVFP4 weight: what takes the largest magnitude to the largest code and
/// the largest scale. In the weight's dtype it may overflow, and is 1 then. Source:
/// compressed-tensors `generate_gparam`.
float global_scale_of(Amax amax, DType dtype) {
  const float least = dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f;
  const float most = fp8::max_value(fp8::Format::kE4m3Fn) * e2m1::kMax;
  // torch divides a number by a tensor as number x reciprocal.
  const float reciprocal = rounded_to(dtype, 1.0f / std::max(amax.value, least));
  const float scale = rounded_to(dtype, reciprocal * most);
  return std::isfinite(scale) ? scale : 1.0f;
}

/// E8M0 code of a group: the power of two below the magnitude, or the next one, over that of the
/// element's largest code. A scale that the weight's dtype cannot hold becomes
/// 1. Source: compressed-tensors `generate_mx_scales`, `round_to_power_2`.
uint8_t mx_scale_of(Amax amax, const QuantArgs& args, DType dtype) {
  const FloatCodes& format = float_codes_of(args);
  const float least = dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f;
  int exponent = 0;
  const float mantissa = 2 * std::frexp(amax.value, &exponent);
  exponent += (mantissa >= format.rounded_up_from ? 1 : 0) - 1;
  const float power = amax.value == 0 ? 0.0f : std::ldexp(1.0f, exponent);
  const int code = power < least ? 0 : std::max(0, 127 + exponent - format.largest_exponent);
  if (rounded_to(dtype, e8m0::decode(static_cast<uint8_t>(code))) == 0.0f) return 127;
  return static_cast<uint8_t>(code);
}

void append(std::vector<std::byte>& bytes, DType dtype, float value) {
  const uint32_t bits = bits_in(dtype, value);
  const auto size = static_cast<std::ptrdiff_t>(bytes_of_element(dtype));
  std::array<std::byte, 4> little;
  std::memcpy(little.data(), &bits, little.size());
  bytes.insert(bytes.end(), little.begin(), little.begin() + size);
}

/// 32-bit words or bytes of codes; those of 4 bits fill bytes, so an odd number of groups of 16
/// ends within a word.
void pack(std::span<const uint8_t> codes, int bits, std::byte* to) {
  if (bits == 8) {
    std::memcpy(to, codes.data(), codes.size());
  } else if (bits == 4) {
    const size_t pairs = codes.size() / 2;
    for (size_t i = 0; i < pairs; ++i)
      to[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
  } else {
    PackedBits{.bits = bits, .crosses_words = true}.pack(codes, to);
  }
}

DType scale_dtype(ScaleDType storage, DType weight) {
  if (storage == ScaleDType::kE4m3) return DType::kF8E4M3;
  return storage == ScaleDType::kE8m0 ? DType::kU8 : weight;
}

}  // namespace

WeightPacker::WeightPacker(std::string module, const QuantArgs& args,
                           const CompressedFormat& storage, const Shape& shape, DType dtype)
    : module_(std::move(module)),
      args_(args),
      storage_(storage),
      dtype_(dtype),
      grid_(scale_grid(args, shape)) {
  KVCAL_CHECK(args.symmetric || (args.type == QuantType::kInt && storage.is_offset));
  KVCAL_CHECK(!storage.is_packed || grid_.columns % (args.type == QuantType::kInt ? 32 : 2) == 0);
}

void WeightPacker::make_scales(const TensorView& weight, Amax fused, ThreadPool* pool) {
  const std::vector<Amax> amax = weight_amax(weight, args_, pool);
  if (args_.symmetric)
    make_float_scales(amax, fused);
  else
    make_asymmetric_scales(weight);
  add_parameter("scale", scale_dtype(storage_.scales, dtype_),
                grid_.scale_shape(resolved_strategy(args_)), std::move(scales_));
  add_other_parameters();
}

void WeightPacker::make_float_scales(const std::vector<Amax>& amax, Amax fused) {
  const float divisor = half_range(args_);
  if (storage_.scales == ScaleDType::kE4m3) global_scale_ = global_scale_of(fused, dtype_);
  for (const Amax group : amax) {
    const float scale = rounded_to(dtype_, group.value / divisor);
    switch (storage_.scales) {
      case ScaleDType::kWeightDtype:
        append(scales_, dtype_, or_zero_scale(scale, dtype_));
        break;
      case ScaleDType::kE4m3: {
        const uint8_t code = fp8::encode(global_scale_ * scale, fp8::Format::kE4m3Fn);
        scales_.push_back(static_cast<std::byte>(
            code == 0 ? fp8::encode(kZeroE4m3Scale, fp8::Format::kE4m3Fn) : code));
        break;
      }
      case ScaleDType::kE8m0:
        scales_.push_back(static_cast<std::byte>(mx_scale_of(group, args_, dtype_)));
        break;
    }
  }
}

void WeightPacker::make_asymmetric_scales(const TensorView& weight) {
  const float steps = std::exp2(static_cast<float>(args_.num_bits)) - 1;
  const float lowest = -std::exp2(static_cast<float>(args_.num_bits - 1));
  const auto size = static_cast<uint64_t>(grid_.block_columns);
  for (uint64_t group = 0; group < static_cast<uint64_t>(grid_.num_scales()); ++group) {
    const auto [least, most] = weight_loops::best().extremes(
        {weight.bytes.data() + group * size * bytes_of_element(dtype_), dtype_, size});
    const float scale = rounded_to(dtype_, rounded_to(dtype_, most - least) / steps);
    // 0 / 0 is NaN, which becomes the zero point 0.
    const float zero = rounded_to(dtype_, lowest - rounded_to(dtype_, least / scale));
    const float clamped = std::clamp(zero, lowest, lowest + steps);
    zero_points_.push_back(static_cast<int8_t>(std::isnan(zero) ? 0.0f : std::nearbyint(clamped)));
    append(scales_, dtype_, or_zero_scale(scale, dtype_));
  }
}

uint64_t WeightPacker::row_bytes() const {
  const int64_t bits = storage_.is_packed ? args_.num_bits : 8;
  return static_cast<uint64_t>(grid_.columns * bits / 8);
}

Shape WeightPacker::codes_shape() const {
  return {grid_.rows, static_cast<int64_t>(row_bytes()) / (bits_of_dtype(storage_.dtype) / 8)};
}

void WeightPacker::add_parameter(std::string_view name, DType dtype, Shape shape,
                                 std::vector<std::byte> bytes) {
  KVCAL_CHECK(bytes.size() == byte_count(shape, dtype));
  parameters_.push_back(
      {module_ + ".weight_" + std::string(name), dtype, std::move(shape), std::move(bytes)});
}

void WeightPacker::add_other_parameters() {
  const auto bytes_of = [](const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (storage_.scales == ScaleDType::kE4m3)
    add_parameter("global_scale", DType::kF32, {1}, bytes_of(global_scale_));
  if (storage_.has_shape)
    add_parameter("shape", DType::kI64, {2}, bytes_of(std::array{grid_.rows, grid_.columns}));
  if (zero_points_.empty()) return;
  std::vector<uint8_t> codes;
  for (const int8_t zero : zero_points_)
    codes.push_back(static_cast<uint8_t>(zero + (1 << (args_.num_bits - 1))));
  const PackedBits packed{.bits = args_.num_bits, .crosses_words = true};
  add_parameter("zero_point", DType::kI32, {packed.words_of(grid_.rows), grid_.grid_columns()},
                packed.pack_columns(codes, grid_.grid_columns()));
}

float WeightPacker::scale_at(uint64_t group) const {
  const std::byte* const scales = parameters_.front().bytes.data();
  switch (storage_.scales) {
    case ScaleDType::kE4m3:
      return fp8::decode(static_cast<uint8_t>(scales[group]), fp8::Format::kE4m3Fn) / global_scale_;
    case ScaleDType::kE8m0:
      return e8m0::decode(static_cast<uint8_t>(scales[group]));
    case ScaleDType::kWeightDtype:
      break;
  }
  return element_of(scales, dtype_, group);
}

void WeightPacker::encode_piece(const std::byte* elements, uint64_t group,
                                std::span<uint8_t> codes) const {
  const Run run{elements, dtype_, codes.size()};
  const auto& loops = weight_loops::best();
  if (args_.type == QuantType::kInt) {
    const float lowest = -std::exp2(static_cast<float>(args_.num_bits - 1));
    loops.encode_int(
        run,
        {.scale = scale_at(group),
         .zero_point = zero_points_.empty() ? 0.0f : static_cast<float>(zero_points_[group]),
         .lowest = lowest,
         .highest = -lowest - 1,
         .added = storage_.is_offset ? 1 << (args_.num_bits - 1) : 0},
        codes.data());
    return;
  }
  // Beside a float32 global scale, quotients are float32, too.
  (loops.*float_codes_of(args_).encode)(run,
                                        {.scale = scale_at(group),
                                         .rounds_quotient = storage_.scales != ScaleDType::kE4m3,
                                         .keeps_zero_sign = true},
                                        codes.data());
}

void WeightPacker::encode_row(const TensorView& weight, int64_t row, int64_t first,
                              std::span<uint8_t> codes) const {
  const auto count = static_cast<int64_t>(codes.size());
  for (int64_t done = 0; done < count;) {
    const int64_t column = first + done;
    const int64_t piece =
        std::min(count - done, grid_.block_columns - column % grid_.block_columns);
    const auto at = static_cast<uint64_t>(row * grid_.columns + column);
    encode_piece(weight.bytes.data() + at * bytes_of_element(dtype_),
                 static_cast<uint64_t>(grid_.scale_of(row, column)),
                 codes.subspan(static_cast<size_t>(done), static_cast<size_t>(piece)));
    done += piece;
  }
}

void WeightPacker::encode(const TensorView& weight, uint64_t offset,
                          std::span<std::byte> bytes) const {
  const int bits = storage_.is_packed ? args_.num_bits : 8;
  const auto unit_bytes = static_cast<uint64_t>(kUnit * bits / 8);
  std::array<uint8_t, kCodesTogether> codes;
  std::array<std::byte, kCodesTogether> packed;
  for (uint64_t done = 0; done < bytes.size();) {
    const uint64_t row = (offset + done) / row_bytes(), at = (offset + done) % row_bytes();
    // Whole units around the bytes that are wanted.
    const int64_t first = static_cast<int64_t>(at / unit_bytes) * kUnit;
    const auto count = static_cast<size_t>(std::min(kCodesTogether, grid_.columns - first));
    encode_row(weight, static_cast<int64_t>(row), first, std::span(codes).first(count));
    pack(std::span(codes).first(count), bits, packed.data());
    const uint64_t skipped = at % unit_bytes;
    const uint64_t made = count * static_cast<uint64_t>(bits) / 8 - skipped;
    const uint64_t taken = std::min<uint64_t>(made, bytes.size() - done);
    std::memcpy(bytes.data() + done, packed.data() + skipped, taken);
    done += taken;
  }
}

}  // namespace kvcal
