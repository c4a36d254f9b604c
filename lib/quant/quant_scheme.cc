#include "quant/quant_scheme.h"

namespace kvcal {
namespace {

Json or_null(const std::optional<QuantArgs>& args) {
  return args ? to_json(*args) : Json(nullptr);
}

}  // namespace

std::string name_of(CompressionFormat format) {
  switch (format) {
    case CompressionFormat::kDense:
      return "dense";
    case CompressionFormat::kNaiveQuantized:
      return "naive-quantized";
    case CompressionFormat::kFloatQuantized:
      return "float-quantized";
    case CompressionFormat::kPackQuantized:
      return "pack-quantized";
    case CompressionFormat::kMxfp4PackQuantized:
      return "mxfp4-pack-quantized";
  }
  return "";
}

CompressionFormat format_of(const QuantScheme& scheme) {
  if (scheme.format) return *scheme.format;
  if (!scheme.weights) return CompressionFormat::kDense;
  return scheme.input_activations ? CompressionFormat::kFloatQuantized
                                  : CompressionFormat::kNaiveQuantized;
}

Json to_json(const QuantScheme& scheme) {
  return {{"format", name_of(format_of(scheme))},
          {"input_activations", or_null(scheme.input_activations)},
          {"output_activations", nullptr},
          {"targets", scheme.targets},
          {"weights", or_null(scheme.weights)}};
}

}  // namespace kvcal
