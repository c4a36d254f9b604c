#include "forward/packed_linear.h"

#include <algorithm>

#include "backend/memory.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

bool quantizes_input(const LinearRows& rows) {
  return rows.quantization && rows.quantization->input != InputQuantization::kNone;
}

bool have_same_input(const LinearRows& a, const LinearRows& b) {
  if (quantizes_input(a) != quantizes_input(b)) return false;
  if (!quantizes_input(a)) return true;
  const LinearQuantization &left = *a.quantization, &right = *b.quantization;
  return left.input == right.input && left.input_scale == right.input_scale &&
         left.group == right.group && a.rows.row_scales.empty() == b.rows.row_scales.empty();
}

using Matrices = std::vector<std::unique_ptr<PackedMatrix>>;

/// Packs rows of numbers.
Matrices pack_numbers(std::span<const LinearRows> rows, PackGroup& group, ComputeType type) {
  std::vector<TensorView> parts;
  for (const auto& [one, quantization] : rows)
    parts.insert(parts.end(), one.parts.begin(), one.parts.end());
  if (std::ranges::all_of(rows, [](const LinearRows& one) { return one.rows.decoded.empty(); }))
    return group.pack({.parts = parts, .type = type});
  std::vector<std::unique_ptr<FloatRows>> floats;
  std::vector<DecodedRows> all;
  for (const auto& [one, quantization] : rows) {
    all.insert(all.end(), one.decoded.begin(), one.decoded.end());
    for (const TensorView& part : one.parts)
      all.push_back(
          {floats.emplace_back(std::make_unique<FloatRows>(part)).get(), 0, part.shape[0]});
  }
  return group.pack({.decoded = all, .type = type});
}

/// Packs rows with the same quantization of inputs, codes or numbers.
Matrices pack_alike(std::span<const LinearRows> rows, PackGroup& group, ComputeType type) {
  std::vector<TensorView> parts;
  std::vector<float> scales;
  for (const auto& [one, quantization] : rows) {
    parts.insert(parts.end(), one.parts.begin(), one.parts.end());
    scales.insert(scales.end(), one.row_scales.begin(), one.row_scales.end());
    if (!one.row_scales.empty()) std::ranges::for_each(one.parts, check_codes);
  }
  return scales.empty() ? pack_numbers(rows, group, type)
                        : group.pack({.parts = parts, .scales = scales});
}

/// Adds what pack_alike packed for the backend.
void add_alike(PackedLinear& linear, const LinearRows& rows, std::unique_ptr<PackedMatrix> matrix,
               Backend& backend, ComputeType type) {
  linear.matrix->in_features = matrix->in_features;
  linear.matrix->bytes += matrix->bytes;
  QuantizedRows& added = linear.quantized.emplace_back();
  added.first = std::exchange(linear.matrix->out_features,
                              linear.matrix->out_features + matrix->out_features);
  added.type = type;
  added.multiplies_codes = !rows.rows.row_scales.empty();
  added.matrix = std::move(matrix);
  if (!quantizes_input(rows)) return;
  added.input = rows.quantization->input;
  added.group = rows.quantization->group;
  if (added.input == InputQuantization::kStatic)
    added.input_scale = {{rows.quantization->input_scale}, backend};
}

}  // namespace

LinearRows linear_rows(const Weights& weights, const LinearQuantization* quantization,
                       int64_t layer, Role role, int64_t index) {
  // Codes are multiplied where a row of the weight has one scale, and so has the whole input or
  // each of its rows.
  const bool multiplies_codes = quantization && quantization->scales_rows() &&
                                (quantization->input == InputQuantization::kStatic ||
                                 quantization->input == InputQuantization::kDynamicToken);
  return {.rows = multiplies_codes ? weights.codes(layer, role, index)
                                   : weights.rows_to_pack(layer, role, index),
          .quantization = quantization};
}

std::vector<PackedLinear> pack_linear(std::span<const LinearRows> rows, PackGroup& group,
                                      ComputeType type) {
  std::vector<PackedLinear> packed(group.backends().size());
  if (std::ranges::none_of(rows, quantizes_input)) {
    Matrices matrices = pack_numbers(rows, group, type);
    for (size_t i = 0; i < packed.size(); ++i) packed[i].matrix = std::move(matrices[i]);
    return packed;
  }
  for (PackedLinear& linear : packed) linear.matrix = std::make_unique<PackedMatrix>();
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && have_same_input(rows[begin], rows[end])) ++end;
    Matrices matrices = pack_alike(rows.subspan(begin, end - begin), group, type);
    for (size_t i = 0; i < packed.size(); ++i)
      add_alike(packed[i], rows[begin], std::move(matrices[i]), *group.backends()[i], type);
  }
  return packed;
}

namespace {

/// An input as FP8 codes; a row shares a scale: a token, or a group of one.
struct QuantizedInput {
  const uint8_t* codes = nullptr;
  const float* scales = nullptr;
  int64_t rows = 0, width = 0;
  bool scale_per_row = false;
};

QuantizedInput quantize(Backend& backend, const ProductArgs& args, const QuantizedRows& part) {
  ProductScratch& scratch = *args.scratch;
  const int64_t in = part.matrix->in_features;
  const bool is_static = part.input == InputQuantization::kStatic;
  const int64_t width = part.input == InputQuantization::kDynamicGroup ? part.group : in;
  QuantizedInput input{.rows = args.rows * in / width, .width = width};
  QuantizeRowsArgs quantize{.x = args.x, .type = part.type, .rows = input.rows, .width = width};
  quantize.out = grown<uint8_t>(backend, scratch.codes, args.rows * in);
  if (is_static) {
    quantize.scales = part.input_scale.get();
  } else {
    quantize.row_scales = grown<float>(backend, scratch.scales, input.rows);
  }
  backend.quantize_rows(quantize);
  input.codes = quantize.out;
  input.scales = is_static ? quantize.scales : quantize.row_scales;
  input.scale_per_row = !is_static;
  return input;
}

/// Dequantizes codes. load_kv expects a scale per head: here per row, or one for all.
const void* dequantize(Backend& backend, const QuantizedInput& input, ComputeType type,
                       ProductScratch& scratch) {
  const int64_t bytes = input.rows * input.width * static_cast<int64_t>(bytes_of(type));
  auto* out = grown<std::byte>(backend, scratch.values, bytes);
  backend.load_kv({.x = input.codes,
                   .dtype = KvDType::kFp8E4m3,
                   .scales = input.scales,
                   .rows = input.scale_per_row ? 1 : input.rows,
                   .heads = input.scale_per_row ? input.rows : 1,
                   .head_dim = input.width,
                   .out_type = type,
                   .out = out});
  return out;
}

void multiply_part(Backend& backend, const ProductArgs& args, const QuantizedRows& part) {
  const float* bias = args.linear.bias.get();
  if (bias) bias += part.first;
  const int64_t stride = args.linear.matrix->out_features;
  QuantizedInput input;
  if (part.input != InputQuantization::kNone) input = quantize(backend, args, part);
  if (part.multiplies_codes) {
    backend.matmul_fp8({.x = input.codes,
                        .x_scales = input.scales,
                        .scale_per_row = input.scale_per_row,
                        .weight = *part.matrix,
                        .bias = bias,
                        .accumulate = args.accumulate,
                        .rows = args.rows,
                        .out = args.out + part.first,
                        .out_stride = stride,
                        .is_decoding = args.is_decoding});
    return;
  }
  backend.matmul({.x = input.codes ? dequantize(backend, input, part.type, *args.scratch) : args.x,
                  .weight = *part.matrix,
                  .bias = bias,
                  .accumulate = args.accumulate,
                  .rows = args.rows,
                  .out = args.out + part.first,
                  .out_stride = stride,
                  .is_decoding = args.is_decoding});
}

}  // namespace

void convert(Backend& backend, const float* x, int64_t rows, int64_t width, ComputeType type,
             void* out) {
  backend.load_kv(
      {.x = x, .rows = rows, .heads = 1, .head_dim = width, .out_type = type, .out = out});
}

void multiply(Backend& backend, const ProductArgs& args) {
  if (!args.linear.quantized.empty()) {
    KVCAL_CHECK(args.scratch);
    for (const QuantizedRows& part : args.linear.quantized) multiply_part(backend, args, part);
    return;
  }
  backend.matmul({.x = args.x,
                  .weight = *args.linear.matrix,
                  .bias = args.linear.bias.get(),
                  .accumulate = args.accumulate,
                  .rows = args.rows,
                  .out = args.out,
                  .is_decoding = args.is_decoding});
}

}  // namespace kvcal
