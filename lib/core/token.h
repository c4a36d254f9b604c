#pragma once

#include <cstdint>

namespace kvcal {

/// Index into a model's vocabulary.
using TokenId = int32_t;

}  // namespace kvcal
