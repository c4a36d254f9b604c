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

using Matrices = std::vector<std::unique_ptr<PackedMatrix>>;

/// Packs rows of numbers.
Matrices pack_numbers(std::span<const LinearRows> rows, PackGroup& group, ComputeType type) {
  std::vector<TensorView> parts;
  for (const LinearRows& one : rows) parts.insert(parts.end(), one.parts.begin(), one.parts.end());
  if (std::ranges::all_of(rows, [](const LinearRows& one) { return one.decoded.empty(); }))
    return group.pack({.parts = parts, .type = type});
  std::vector<std::unique_ptr<FloatRows>> floats;
  std::vector<DecodedRows> all;
  for (const LinearRows& one : rows) {
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
  for (const LinearRows& one : rows) {
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
  added.multiplies_codes = !rows.row_scales.empty();
  added.matrix = std::move(matrix);
  if (!quantizes_input(rows)) return;
  added.input = rows.quantization->input;
  added.group = rows.quantization->group;
  if (added.input == InputQuantization::kStatic)
    added.input_scale = {{rows.quantization->input_scale}, backend};
}

}  // namespace

bool multiplies_codes(const LinearQuantization* quantization) {
  return quantization && quantization->scales_rows() &&
         (quantization->input == InputQuantization::kStatic ||
          quantization->input == InputQuantization::kDynamicToken);
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

}  // namespace kvcal
