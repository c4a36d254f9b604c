#pragma once

#include "core/json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// compressed-tensors' words for how many values share a scale (`QuantizationStrategy`).
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

/// The strategy that is meant: the one named, else tensor; with a group_size, group, or channel
/// where it is -1. Throws Error for another group_size. Source: compressed-tensors
/// `QuantizationArgs.validate_model_after`.
Strategy resolved_strategy(const QuantArgs& args);

/// The twelve keys as llm-compressor saves them, alphabetical, absent ones null, the
/// strategy resolved (docs/formats.md).
Json to_json(const QuantArgs& args);

}  // namespace kvcal
