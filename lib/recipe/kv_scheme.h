#pragma once

#include "quant/quant_args.h"
#include "recipe/fields.h"

namespace kvcal {

/// Reads `kv_cache_scheme`: the keys of compressed-tensors' QuantizationArgs, with the values an
/// engine can load (docs/numerics.md). The strategy and the observer come out named, defaults
/// included. Throws Error.
QuantArgs read_kv_cache_scheme(const Field& field);

}  // namespace kvcal
