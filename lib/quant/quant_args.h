#pragma once

#include "core/json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// Granularity of scales, in compressed-tensors' words (`QuantizationStrategy`).
enum class Strategy { kTensor, kChannel, kGroup, kBlock, kToken, kTensorGroup, kAttnHead };
enum class QuantType { kInt, kFloat };

std::string name_of(Strategy strategy);
std::string name_of(QuantType type);

/// compressed-tensors' `QuantizationArgs`, field by field with its defaults.
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

}  // namespace kvcal
