#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace kvcal {

/// Granularity of scales, in compressed-tensors' words (`QuantizationStrategy`).
enum class Strategy { kTensor, kChannel, kGroup, kBlock, kToken, kTensorGroup, kAttnHead };
enum class QuantType { kInt, kFloat };

std::string name_of(Strategy strategy);
std::string name_of(QuantType type);
/// nullopt: no strategy has this name.
std::optional<Strategy> find_strategy(std::string_view name);

// clang-format off

/// Calls row(key) for each key of compressed-tensors' `QuantizationArgs`, in its order: the fields
/// of QuantArgs, which it names. Readers know these, and writers write all of them. Source:
/// compressed-tensors 0.19 `quantization/quant_args.py`, which refuses others.
#define KVCAL_QUANT_ARGS(row)                                                           \
  row(num_bits) row(type) row(symmetric) row(group_size) row(strategy)                  \
  row(block_structure) row(dynamic) row(actorder) row(scale_dtype) row(zp_dtype)        \
  row(observer) row(observer_kwargs)

// clang-format on

#define KVCAL_KEY(key) #key,
inline constexpr auto kQuantArgsKeys =
    std::to_array<std::string_view>({KVCAL_QUANT_ARGS(KVCAL_KEY)});
#undef KVCAL_KEY

/// compressed-tensors' `QuantizationArgs` with its defaults.
struct QuantArgs {
  int num_bits = 8;
  QuantType type = QuantType::kInt;
  bool symmetric = true;
  std::optional<int64_t> group_size;
  std::optional<Strategy> strategy;  ///< nullopt: decided from group_size, else kTensor
  std::optional<std::vector<int64_t>> block_structure;
  bool dynamic = false;
  std::optional<std::string> actorder;
  std::optional<std::string> scale_dtype;
  std::optional<std::string> zp_dtype;
  std::optional<std::string> observer;
  Json observer_kwargs = Json::object();
};

/// Strategy of args: the one named; else from group_size: group, or channel for -1; else tensor.
/// Throws Error for another group_size. Source: compressed-tensors
/// `QuantizationArgs.validate_model_after`.
Strategy resolved_strategy(const QuantArgs& args);

/// The twelve keys as llm-compressor saves them: alphabetical, absent ones null, the strategy
/// resolved (docs/formats.md).
Json to_json(const QuantArgs& args);

/// Storage of a group's weights, in compressed-tensors' words (`CompressionFormat`).
enum class CompressionFormat {
  kDense,
  kNaiveQuantized,
  kFloatQuantized,
  kPackQuantized,
  kMxfp4PackQuantized,
};
std::string name_of(CompressionFormat format);

/// One config group: the quantization of its targets. Source: compressed-tensors
/// `QuantizationScheme`.
struct QuantScheme {
  std::vector<std::string> targets;  ///< class names, module names or "re:" patterns
  /// A recipe names every strategy, and every observer unless args are dynamic. Both nullopt:
  /// targets stay 16-bit. Only static inputs: the group is for attention.
  std::optional<QuantArgs> weights, input_activations;
  std::optional<CompressionFormat> format;  ///< as written; nullopt: see format_of
};

/// Format as written; else float-quantized for FP8 weights with quantized inputs, naive-quantized
/// without, and dense without weights. Source: compressed-tensors `infer_module_format`.
CompressionFormat format_of(const QuantScheme& scheme);

/// Quantization of a Linear's input before the product.
enum class InputQuantization : uint8_t { kNone, kStatic, kDynamicToken, kDynamicGroup };

/// Granularity of the scales of one Linear with an FP8 weight: what a form of checkpoints says of
/// it, whether it is read or written.
struct LinearScheme {
  Strategy strategy = Strategy::kTensor;      ///< of the weight: kTensor, kChannel or kBlock
  int64_t block_rows = 0, block_columns = 0;  ///< kBlock
  InputQuantization input = InputQuantization::kNone;
  int64_t group = 0;  ///< kDynamicGroup: values of an input that share a scale

  bool operator==(const LinearScheme&) const = default;
};

/// That of a config group with FP8 weights.
LinearScheme linear_scheme(const QuantScheme& group);

/// A config group as in config.json: format, input_activations, output_activations, targets,
/// weights.
Json to_json(const QuantScheme& scheme);

}  // namespace kvcal
