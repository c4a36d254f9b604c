#include "stored/compressed_tensors_storage.h"

#include <algorithm>
#include <array>

#include "stored/float_matrix.h"
#include "stored/fp8_args.h"
#include "stored/integer_matrix.h"

namespace kvcal {
namespace {

/// Kinds of weights that a format holds. Source: compressed-tensors 0.20, `can_compress` of each
/// compressor.
struct FormatRow {
  std::string_view format;
  bool (*holds)(const QuantArgs&);
};

bool is_integer(const QuantArgs& args) {
  return args.type == QuantType::kInt;
}
bool is_float(const QuantArgs& args, int bits) {
  return args.type == QuantType::kFloat && args.num_bits == bits;
}
bool has_groups_of_32(const QuantArgs& args) {
  return args.strategy == Strategy::kGroup && args.group_size == 32;
}

constexpr std::array<FormatRow, 7> kFormats{{
    {"pack-quantized", is_integer},
    {"int-quantized", [](const QuantArgs& args) { return is_integer(args) && args.num_bits == 8; }},
    {"float-quantized", [](const QuantArgs& args) { return is_float(args, 8); }},
    {"naive-quantized", [](const QuantArgs& args) { return args.num_bits == 8; }},
    {"nvfp4-pack-quantized", [](const QuantArgs& args) { return is_float(args, 4); }},
    {"mxfp4-pack-quantized",
     [](const QuantArgs& args) { return is_float(args, 4) && has_groups_of_32(args); }},
    {"mxfp8-quantized",
     [](const QuantArgs& args) { return is_float(args, 8) && has_groups_of_32(args); }},
}};

void check_format(const QuantArgs& args, const std::optional<std::string>& format) {
  const auto row =
      format ? std::ranges::find(kFormats, *format, &FormatRow::format) : kFormats.end();
  if (row != kFormats.end() && !row->holds(args))
    fail("key 'format' is '", *format, "', and weights are of type ", name_of(args.type), ", ",
         args.num_bits, " bits, strategy ", name_of(*args.strategy),
         ", which that format does not hold");
}

std::unique_ptr<CodedStorage> integers(const QuantArgs& args,
                                       const std::optional<std::string>& format) {
  if (args.num_bits < 1 || args.num_bits > 8)
    fail("integers of ", args.num_bits, " bits are not read, expected 1 to 8");
  const Strategy strategy = *args.strategy;
  if (strategy != Strategy::kTensor && strategy != Strategy::kChannel &&
      strategy != Strategy::kGroup)
    fail("strategy '", name_of(strategy),
         "' of integer weights is not read, expected tensor, channel or group");
  const bool is_packed = format == "pack-quantized" || args.num_bits != 8;
  return packed_integers({.bits = args.num_bits,
                          .is_symmetric = args.symmetric,
                          .group = strategy == Strategy::kGroup ? *args.group_size : 0,
                          .is_tensor = strategy == Strategy::kTensor,
                          .is_packed = is_packed});
}

std::unique_ptr<CodedStorage> fp4(const QuantArgs& args) {
  if (!args.symmetric) fail("asymmetric FP4 is not read");
  if (has_groups_of_32(args)) return fp4_codes({.group = 32, .has_exponents = true});
  if (*args.strategy != Strategy::kTensorGroup || args.group_size != 16)
    fail("FP4 of strategy ", name_of(*args.strategy), " is not read, expected tensor_group with ",
         "groups of 16, or group with groups of 32");
  return fp4_codes({.global_name = ".weight_global_scale", .divides_global = true});
}

}  // namespace

bool is_fp8(const Json& args) {
  return optional_string(args, "type").value_or("int") == "float" &&
         optional_int(args, "num_bits").value_or(8) == 8;
}

std::unique_ptr<CodedStorage> compressed_tensors_storage(const Json& quant_args,
                                                         const std::optional<std::string>& format) {
  const QuantArgs args = parse_args(quant_args);
  check_format(args, format);
  if (args.type == QuantType::kInt) return integers(args, format);
  if (args.num_bits == 4) return fp4(args);
  if (args.num_bits != 8)
    fail("type 'float' of ", args.num_bits, " bits is not read, expected 4 or 8");
  if (has_groups_of_32(args) && (format == "mxfp8-quantized" || args.scale_dtype))
    return mxfp8_codes();
  return nullptr;
}

}  // namespace kvcal
