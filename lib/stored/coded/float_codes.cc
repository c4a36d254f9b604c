#include <algorithm>
#include <array>

#include "quant/fp8.h"
#include "stored/coded_matrix.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// Values of a byte of two codes.
struct ByteValues {
  std::array<std::array<float, 2>, 256> values{};
  constexpr ByteValues() {
    for (size_t byte = 0; byte < 256; ++byte)
      values[byte] = {e2m1::decode(static_cast<uint8_t>(byte)),
                      e2m1::decode(static_cast<uint8_t>(byte >> 4))};
  }
};
constexpr ByteValues kByteValues;

/// Global scale of a matrix, and its use.
struct GlobalScale {
  float value = 1.0f;
  bool divides = false;
  float applied(float scale) const { return divides ? scale / value : scale * value; }
};

class Fp4Matrix : public CodedMatrix {
 public:
  Fp4Matrix(Shape shape, TensorView codes, std::vector<TensorView> scales, int64_t group,
            GlobalScale global)
      : CodedMatrix(std::move(shape), std::move(codes), std::move(scales)),
        group_(group),
        groups_(divided_up(width(), group)),
        global_(global) {}

  void decode(int64_t first, int64_t count, float* out) const override {
    const int64_t row_bytes = width() / 2;
    for (int64_t row = first; row < first + count; ++row) {
      const std::byte* const bytes = codes_.bytes.data() + row * row_bytes;
      float* const to = out + (row - first) * width();
      for (int64_t group = 0; group < groups_; ++group) {
        const float scale = global_.applied(scale_at(scales_[0], row * groups_ + group));
        const int64_t end = std::min((group + 1) * group_, width()) / 2;
        for (int64_t pair = group * group_ / 2; pair < end; ++pair) {
          const auto& values = kByteValues.values[static_cast<uint8_t>(bytes[pair])];
          to[2 * pair] = values[0] * scale;
          to[2 * pair + 1] = values[1] * scale;
        }
      }
    }
  }

  std::string packing_problem() const override {
    if (scales_.size() == 1 && group_ == 32) return "";  // MXFP4
    return "compressed-tensors divides by the global scale of FP4 weights and this form multiplies "
           "by it, so rounding would change values";
  }

  QuantArgs packed_args() const override {
    QuantArgs args;
    args.num_bits = 4;
    args.type = QuantType::kFloat;
    args.strategy = Strategy::kGroup;
    args.group_size = group_;
    args.scale_dtype = args.zp_dtype = "torch.uint8";
    return args;
  }

  std::vector<TensorSource> packed_tensors(const std::string& module, const QuantArgs&,
                                           const RowChoice& rows) const override {
    return {chosen_rows(module + ".weight_packed", DType::kU8, codes_, rows),
            chosen_rows(module + ".weight_scale", DType::kU8, scales_[0], rows)};
  }

 private:
  int64_t group_, groups_;
  GlobalScale global_;
};

std::unique_ptr<CodedMatrix> open_fp4(ModuleTensors& tensors, const Fp4Args& args) {
  const TensorView& codes = tensors.need(args.codes_name, {DType::kU8}, 2);
  const Shape shape{codes.shape[0], 2 * codes.shape[1]};
  const Shape grid{shape[0], divided_up(shape[1], args.group)};
  const TensorView& scale = args.has_exponents
                                ? tensors.need(args.scale_name, {DType::kU8, DType::kF8E8M0}, grid)
                                : tensors.need(args.scale_name, {DType::kF8E4M3}, grid);
  check_scales(scale);
  std::vector<TensorView> scales{scale};
  GlobalScale global{.divides = args.divides_global};
  if (!args.global_name.empty()) {
    scales.push_back(tensors.need(args.global_name, {DType::kF32}, Shape{1}));
    check_scales(scales[1]);
    if (!scales[1].is_hollow()) global.value = scale_at(scales[1], 0);
  }
  tensors.pass(".input_scale");
  tensors.pass(".input_global_scale");
  return std::make_unique<Fp4Matrix>(shape, codes, std::move(scales), args.group, global);
}

/// out[i] = value of the code at first + i of a row. first and count: multiples of 4, or up to the
/// end of the row.
using ExpandCodes = void (*)(const std::byte* row, int64_t first, int64_t count, float* out);

void expand_e4m3(const std::byte* row, int64_t first, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = fp8::kE4m3Values[static_cast<uint8_t>(row[first + i])];
}

/// Value of the lowest six bits of E3M2: two of mantissa, three of exponent with bias 3, the sign.
constexpr float decode_e3m2(uint8_t code) {
  const uint32_t mantissa = code & 3u, exponent = code >> 2 & 7u;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) / 16
                                        : static_cast<float>((4 + mantissa) << (exponent - 1)) / 16;
  return (code & 32u) != 0 ? -magnitude : magnitude;
}

/// Three bytes hold four codes, the first in the lowest bits. Source: compressed-tensors 0.20.1
/// `unpack_fp6_from_uint8`, Quark 0.13 `Pack_fp6`.
template <auto kDecode>
void expand_fp6(const std::byte* row, int64_t first, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += 4) {
    const std::byte* const bytes = row + (first + i) / 4 * 3;
    const uint32_t word = static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
                          static_cast<uint32_t>(bytes[2]) << 16;
    for (int64_t code = 0; code < 4; ++code)
      out[i + code] = kDecode(static_cast<uint8_t>(word >> (6 * code)));
  }
}

/// Codes with a power of two for each 32 columns.
class MxMatrix : public CodedMatrix {
 public:
  static constexpr int64_t kGroup = 32;
  MxMatrix(Shape shape, TensorView codes, TensorView scales, ExpandCodes expand)
      : CodedMatrix(std::move(shape), std::move(codes), {std::move(scales)}), expand_(expand) {}

  void decode(int64_t first, int64_t count, float* out) const override {
    const int64_t groups = divided_up(width(), kGroup);
    for (int64_t row = first; row < first + count; ++row, out += width()) {
      const TensorView codes = rows_of(codes_, row, 1);
      if (codes_.dtype == DType::kF8E4M3) check_codes(codes);
      for (int64_t group = 0; group < groups; ++group) {
        const float scale = scale_at(scales_[0], row * groups + group);
        const int64_t column = group * kGroup, end = std::min(column + kGroup, width());
        expand_(codes.bytes.data(), column, end - column, out + column);
        for (int64_t i = column; i < end; ++i) out[i] *= scale;
      }
    }
  }

 private:
  ExpandCodes expand_;
};

std::unique_ptr<CodedMatrix> open_mx(ModuleTensors& tensors, const TensorView& codes, Shape shape,
                                     ExpandCodes expand) {
  const Shape grid{shape[0], divided_up(shape[1], MxMatrix::kGroup)};
  const TensorView& scale = tensors.need(".weight_scale", {DType::kU8, DType::kF8E8M0}, grid);
  check_scales(scale);
  return std::make_unique<MxMatrix>(std::move(shape), codes, scale, expand);
}

std::unique_ptr<CodedMatrix> open_mxfp8(ModuleTensors& tensors) {
  const TensorView& codes = tensors.need(".weight", {DType::kF8E4M3}, 2);
  return open_mx(tensors, codes, codes.shape, expand_e4m3);
}

std::unique_ptr<CodedMatrix> open_mxfp6(ModuleTensors& tensors, std::string_view name, Fp6 type) {
  const TensorView& codes = tensors.need(name, {DType::kU8}, 2);
  if (codes.shape[1] % 3 != 0)
    fail("misshapen: ", codes.name, " is ", codes.shape,
         ", expected a multiple of 3 columns, which hold 4 codes of 6 bits each");
  return open_mx(tensors, codes, {codes.shape[0], codes.shape[1] / 3 * 4},
                 type == Fp6::kE2m3 ? expand_fp6<e2m3::decode> : expand_fp6<decode_e3m2>);
}

}  // namespace

CodeFormat fp4_codes(const Fp4Args& args) {
  return {.codes_name = args.codes_name == ".weight" ? args.scale_name : args.codes_name,
          .open = [args](ModuleTensors& tensors) { return open_fp4(tensors, args); }};
}

CodeFormat mxfp8_codes() {
  return {.codes_name = ".weight_scale", .open = open_mxfp8};
}

CodeFormat mxfp6_codes(std::string_view codes_name, Fp6 type) {
  // 16-bit modules have a tensor of the former name, too.
  return {.codes_name = codes_name == ".weight" ? ".weight_scale" : codes_name,
          .open = [=](ModuleTensors& tensors) { return open_mxfp6(tensors, codes_name, type); }};
}

std::unique_ptr<CodedMatrix> mxfp4_matrix(const Shape& shape, const TensorView& codes,
                                          const TensorView& scales, int64_t group) {
  return std::make_unique<Fp4Matrix>(shape, codes, std::vector{scales}, group, GlobalScale{});
}

}  // namespace kvcal
