#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "quant/quant_args.h"

namespace kvcal {

/// [rows, columns] of blocks, or "128x128" as compressed-tensors takes it, too. key: for messages.
std::pair<int64_t, int64_t> parse_block(std::string_view key, const Json* block);

/// compressed-tensors' arguments of weights, inputs or a cache: symmetric FP8, and no key that is
/// not one of theirs. The strategy, decided as compressed-tensors does. Throws Error naming the
/// key.
Strategy parse_fp8_args(const Json& args);

/// The key "dynamic". Throws Error where it is neither true nor false.
bool is_dynamic(const Json& args);

/// object[key], a list of strings; none where it is absent.
std::vector<std::string> strings_of(const Json& object, std::string_view key);

}  // namespace kvcal
