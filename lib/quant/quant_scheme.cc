#include "quant/quant_scheme.h"

#include <algorithm>
#include <map>

namespace kvcal {
namespace {

// In the order of the enumerators.
constexpr auto kStrategies = std::to_array<std::string_view>(
    {"tensor", "channel", "group", "block", "token", "tensor_group", "attn_head"});
constexpr auto kFormats = std::to_array<std::string_view>(
    {"dense", "naive-quantized", "float-quantized", "pack-quantized", "mxfp4-pack-quantized"});

template <class T>
Json json_of(const T& value) {
  return value;
}
Json json_of(QuantType type) {
  return name_of(type);
}
Json json_of(Strategy strategy) {
  return name_of(strategy);
}
template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json(nullptr);
}
Json json_of(const std::optional<QuantArgs>& args) {
  return args ? to_json(*args) : Json(nullptr);
}

}  // namespace

std::string name_of(Strategy strategy) {
  return std::string(kStrategies.at(static_cast<size_t>(strategy)));
}

std::string name_of(QuantType type) {
  return type == QuantType::kInt ? "int" : "float";
}

std::optional<Strategy> find_strategy(std::string_view name) {
  const auto found = std::ranges::find(kStrategies, name);
  if (found == kStrategies.end()) return std::nullopt;
  return static_cast<Strategy>(found - kStrategies.begin());
}

Strategy resolved_strategy(const QuantArgs& args) {
  if (args.strategy) return *args.strategy;
  if (!args.group_size) return Strategy::kTensor;
  if (*args.group_size > 0) return Strategy::kGroup;
  if (*args.group_size == -1) return Strategy::kChannel;
  fail("group_size: found ", *args.group_size,
       ", expected a positive size, or -1 for one scale a channel");
}

Json to_json(const QuantArgs& given) {
  QuantArgs args = given;
  args.strategy = resolved_strategy(given);
  // A symmetric scheme has no zero point: compressed-tensors always writes null.
  if (args.symmetric) args.zp_dtype.reset();
  std::map<std::string, Json> alphabetical;
#define KVCAL_WRITE(key) alphabetical[#key] = json_of(args.key);
  KVCAL_QUANT_ARGS(KVCAL_WRITE)
#undef KVCAL_WRITE
  return alphabetical;
}

std::string name_of(CompressionFormat format) {
  return std::string(kFormats.at(static_cast<size_t>(format)));
}

CompressionFormat format_of(const QuantScheme& scheme) {
  if (scheme.format) return *scheme.format;
  if (!scheme.weights) return CompressionFormat::kDense;
  return scheme.input_activations ? CompressionFormat::kFloatQuantized
                                  : CompressionFormat::kNaiveQuantized;
}

LinearScheme linear_scheme(const QuantScheme& group) {
  LinearScheme scheme{.strategy = resolved_strategy(*group.weights)};
  if (scheme.strategy == Strategy::kBlock) {
    const auto& block = group.weights->block_structure;
    KVCAL_CHECK(block && block->size() == 2);
    scheme.block_rows = block->at(0);
    scheme.block_columns = block->at(1);
  }
  const std::optional<QuantArgs>& inputs = group.input_activations;
  if (!inputs) return scheme;
  scheme.input = !inputs->dynamic ? InputQuantization::kStatic
                 : resolved_strategy(*inputs) == Strategy::kGroup
                     ? InputQuantization::kDynamicGroup
                     : InputQuantization::kDynamicToken;
  if (scheme.input == InputQuantization::kDynamicGroup)
    scheme.group = inputs->group_size.value_or(0);
  return scheme;
}

Json to_json(const QuantScheme& scheme) {
  return {{"format", name_of(format_of(scheme))},
          {"input_activations", json_of(scheme.input_activations)},
          {"output_activations", nullptr},
          {"targets", scheme.targets},
          {"weights", json_of(scheme.weights)}};
}

}  // namespace kvcal
