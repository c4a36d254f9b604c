// ModelOpt's weights of 4-bit integers, and the scales of inputs that AWQ leaves beside weights.
#include "quant/fp8.h"
#include "stored/coded_matrix.h"

namespace kvcal {
namespace {

class ModelOptInt4Matrix : public CodedMatrix {
 public:
  /// fp8_scale: 0 where values are not rounded to E4M3.
  ModelOptInt4Matrix(Shape shape, TensorView codes, std::vector<TensorView> scales, int64_t group,
                     float fp8_scale)
      : CodedMatrix(std::move(shape), std::move(codes), std::move(scales)),
        group_(group),
        fp8_scale_(fp8_scale) {}

  void decode(int64_t first, int64_t count, float* out) const override {
    std::vector<float> scales(static_cast<size_t>(divided_up(width(), group_)));
    for (int64_t row = first; row < first + count; ++row) {
      scales_at(scales_[0], row * std::ssize(scales), scales);
      const std::byte* const pairs = codes_.bytes.data() + row / 2 * width();
      for (int64_t column = 0; column < width(); ++column) {
        const auto pair = static_cast<uint8_t>(pairs[column]);
        const int code = row % 2 == 0 ? pair & 15 : pair >> 4;
        const auto integer = static_cast<float>(code < 8 ? code : code - 16);
        *out++ = as_served(integer * scales[static_cast<size_t>(column / group_)]);
      }
    }
  }

 private:
  /// Source: ModelOpt 0.48.0rc1, a SequentialQuantizer of INT4 and FP8.
  float as_served(float value) const {
    if (fp8_scale_ == 0) return value;
    return fp8::decode(fp8::encode(value / fp8_scale_, fp8::Format::kE4m3Fn),
                       fp8::Format::kE4m3Fn) *
           fp8_scale_;
  }

  int64_t group_;
  float fp8_scale_;
};

std::unique_ptr<CodedMatrix> open_int4(ModuleTensors& tensors, int64_t group, bool rounds_to_fp8) {
  const TensorView& codes = tensors.need(".weight", {DType::kU8}, 2);
  const Shape shape{codes.shape[0] * 2, codes.shape[1]};
  const int64_t columns = group > 0 ? group : shape[1];
  std::vector<TensorView> scales{
      tensors.need(".weight_scale", kFloats, Shape{shape[0], divided_up(shape[1], columns)})};
  check_scales(scales[0]);
  float fp8_scale = 0;
  if (rounds_to_fp8) {
    scales.push_back(tensors.need(".weight_scale_2", kFloats, Shape{1}));
    check_scales(scales[1]);
    if (!scales[1].is_hollow()) fp8_scale = scale_at(scales[1], 0);
  }
  tensors.pass(".input_scale");
  return std::make_unique<ModelOptInt4Matrix>(shape, codes, std::move(scales), columns, fp8_scale);
}

/// The product of W and an input that is multiplied by scales is that of W with its columns
/// multiplied.
class ScaledColumns : public CodedMatrix {
 public:
  ScaledColumns(std::unique_ptr<CodedMatrix> matrix, const TensorView& columns)
      : CodedMatrix(matrix->shape(), matrix->codes(), all_scales(*matrix, columns)),
        matrix_(std::move(matrix)),
        factors_(static_cast<size_t>(width())) {
    if (!columns.is_hollow()) scales_at(columns, 0, factors_);
  }

  void decode(int64_t first, int64_t count, float* out) const override {
    matrix_->decode(first, count, out);
    for (int64_t row = 0; row < count; ++row)
      for (const float factor : factors_) *out++ *= factor;
  }

  std::string packing_problem() const override {
    return "compressed-tensors has no scales of inputs as pre_quant_scale";
  }

 private:
  static std::vector<TensorView> all_scales(const CodedMatrix& matrix, const TensorView& columns) {
    std::vector<TensorView> scales(matrix.scales().begin(), matrix.scales().end());
    scales.push_back(columns);
    return scales;
  }

  std::unique_ptr<CodedMatrix> matrix_;
  std::vector<float> factors_;
};

}  // namespace

CodeFormat modelopt_int4_codes(int64_t group, bool rounds_to_fp8) {
  return {.codes_name = ".weight_scale",
          .open = [=](ModuleTensors& tensors) { return open_int4(tensors, group, rounds_to_fp8); }};
}

CodeFormat with_input_scale(CodeFormat codes) {
  const auto open = [inner = std::move(codes.open)](ModuleTensors& tensors) {
    constexpr std::string_view kName = ".pre_quant_scale";
    std::unique_ptr<CodedMatrix> matrix = inner(tensors);
    if (!tensors.has(kName)) return matrix;
    const TensorView& scale = tensors.need(kName, kFloats, Shape{matrix->width()});
    check_scales(scale);
    matrix = std::make_unique<ScaledColumns>(std::move(matrix), scale);
    return matrix;
  };
  return {.codes_name = codes.codes_name, .open = open};
}

}  // namespace kvcal
