#include "forward/packed_linear.h"

#include <algorithm>

#include "stored/row_decoders.h"
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
         left.group == right.group && a.row_scales.empty() == b.row_scales.empty();
}

/// Packs rows of numbers.
std::unique_ptr<PackedMatrix> pack_numbers(std::span<const LinearRows> rows, Backend& backend,
                                           ComputeType type) {
  std::vector<TensorView> parts;
  for (const LinearRows& one : rows) parts.insert(parts.end(), one.parts.begin(), one.parts.end());
  if (std::ranges::all_of(rows, [](const LinearRows& one) { return one.decoded.empty(); }))
    return backend.pack(parts, type);
  std::vector<std::unique_ptr<FloatRows>> floats;
  std::vector<DecodedRows> all;
  for (const LinearRows& one : rows) {
    all.insert(all.end(), one.decoded.begin(), one.decoded.end());
    for (const TensorView& part : one.parts)
      all.push_back(
          {floats.emplace_back(std::make_unique<FloatRows>(part)).get(), 0, part.shape[0]});
  }
  return backend.pack_decoded(all, type);
}

/// Packs rows with the same quantization of inputs.
QuantizedRows pack_alike(std::span<const LinearRows> rows, int64_t first, Backend& backend,
                         ComputeType type) {
  std::vector<TensorView> parts;
  std::vector<float> scales;
  for (const LinearRows& one : rows) {
    parts.insert(parts.end(), one.parts.begin(), one.parts.end());
    scales.insert(scales.end(), one.row_scales.begin(), one.row_scales.end());
    if (!one.row_scales.empty()) std::ranges::for_each(one.parts, check_codes);
  }
  QuantizedRows packed;
  packed.first = first;
  packed.type = type;
  packed.multiplies_codes = !scales.empty();
  packed.matrix =
      scales.empty() ? pack_numbers(rows, backend, type) : backend.pack_fp8(parts, scales);
  if (!quantizes_input(rows.front())) return packed;
  const LinearQuantization& quantization = *rows.front().quantization;
  packed.input = quantization.input;
  packed.group = quantization.group;
  if (packed.input == InputQuantization::kStatic)
    packed.input_scale = {{quantization.input_scale}, backend};
  return packed;
}

}  // namespace

bool multiplies_codes(const LinearQuantization* quantization) {
  return quantization && quantization->scales_rows() &&
         (quantization->input == InputQuantization::kStatic ||
          quantization->input == InputQuantization::kDynamicToken);
}

PackedLinear pack_linear(std::span<const LinearRows> rows, Backend& backend, ComputeType type) {
  PackedLinear packed;
  if (std::ranges::none_of(rows, quantizes_input)) {
    packed.matrix = pack_numbers(rows, backend, type);
    return packed;
  }
  packed.matrix = std::make_unique<PackedMatrix>();
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && have_same_input(rows[begin], rows[end])) ++end;
    const QuantizedRows& alike = packed.quantized.emplace_back(
        pack_alike(rows.subspan(begin, end - begin), packed.matrix->out_features, backend, type));
    packed.matrix->out_features += alike.matrix->out_features;
    packed.matrix->in_features = alike.matrix->in_features;
    packed.matrix->bytes += alike.matrix->bytes;
  }
  return packed;
}

}  // namespace kvcal
