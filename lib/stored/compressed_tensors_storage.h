#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/json.h"
#include "stored/coded_matrix.h"

namespace kvcal {

/// How compressed-tensors stores weights of these arguments. format: of the group, or of the whole
/// config. nullptr: FP8 with plain scales. Throws Error where format and arguments disagree, and
/// for what is not read.
std::unique_ptr<CodedStorage> compressed_tensors_storage(const Json& quant_args,
                                                         const std::optional<std::string>& format);

/// Whether arguments are of FP8, E4M3.
bool is_fp8(const Json& args);

}  // namespace kvcal
