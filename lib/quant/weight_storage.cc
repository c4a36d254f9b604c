#include "quant/weight_storage.h"

#include "core/error.h"

namespace kvcal {
namespace {

struct Row {
  WeightStorage storage;
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
      .scales = ScaleStorage::kE8m0,
      .is_packed = true},
     [](const QuantArgs& args, bool) { return is_mx(args) && args.num_bits == 4; }},
    {{.format = "mxfp8-quantized", .codes = "weight", .scales = ScaleStorage::kE8m0},
     [](const QuantArgs& args, bool) { return is_mx(args) && args.num_bits == 8; }},
    {{.format = "nvfp4-pack-quantized",
      .codes = "weight_packed",
      .dtype = DType::kU8,
      .scales = ScaleStorage::kE4m3,
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

const WeightStorage& storage_of(const QuantArgs& weights, const std::optional<QuantArgs>& inputs) {
  KVCAL_CHECK(weights.num_bits >= 2 && weights.num_bits <= 8);
  KVCAL_CHECK(weights.type == QuantType::kInt || weights.num_bits == 4 || weights.num_bits == 8);
  for (const Row& row : kRows)
    if (row.holds(weights, inputs.has_value())) return row.storage;
  KVCAL_CHECK(false);
  __builtin_unreachable();
}

}  // namespace kvcal
