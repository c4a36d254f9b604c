#pragma once

#include "core/json.h"

namespace kvcal {

/// quantization_config in AMD Quark's words, without outputs of K and V. global: of all Linears but
/// those that exclude names. Source: AMD Quark 0.13's export.
Json quark_config(Json global, Json exclude);

}  // namespace kvcal
