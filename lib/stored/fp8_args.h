#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "quant/quant_args.h"

namespace kvcal {

/// Parses [rows, columns] of blocks, or "128x128" as compressed-tensors writes it. key: for
/// messages.
std::pair<int64_t, int64_t> parse_block(std::string_view key, const Json* block);

/// Parses compressed-tensors' arguments of weights: type, bits, symmetry, group_size, scale_dtype
/// and the strategy, by compressed-tensors' rules. Throws Error naming the key for an unknown key
/// or value.
QuantArgs parse_args(const Json& args);

/// Parses compressed-tensors' arguments of weights, inputs or a cache. Returns the strategy by
/// compressed-tensors' rules. Throws Error naming the key for anything but symmetric FP8, and for
/// an unknown key.
Strategy parse_fp8_args(const Json& args);

/// Columns that share a scale; 0 for -1, which is one group. Throws Error for another number
/// below 1.
int64_t positive_group(const Json& config, std::string_view key);

/// Whether a word of a config, "e4m3", "float8_e4m3fn", "fp8_e4m3" or "torch.float8_e4m3fn", means
/// E4M3FN.
bool means_e4m3fn(std::string_view word);

/// Value of the key "dynamic". Throws Error where it is neither true nor false.
bool is_dynamic(const Json& args);

/// object[key], a list of strings; empty where the key is absent.
std::vector<std::string> strings_of(const Json& object, std::string_view key);

}  // namespace kvcal
