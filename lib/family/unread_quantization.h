#pragma once

#include <string>
#include <string_view>

namespace kvcal {

/// Where to go from weights that are not read, for messages.
inline constexpr std::string_view kStartElsewhere =
    "start from the checkpoint that it was made from, in 16 bits, FP8, GPTQ, AWQ or "
    "compressed-tensors";

/// What a quant_method that is not read stands for, and what to start from instead: ": EXL2, of
/// ExLlamaV2; start from …". Empty for other words.
std::string about_unread(std::string_view method);

}  // namespace kvcal
