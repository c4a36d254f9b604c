#pragma once

#include "run/convert_checkpoint.h"

namespace kvcal {

/// Prints the source, what each layer loses, and the written folders; json: the manifest instead.
void print_conversion(const ConversionResult& result, bool json);

}  // namespace kvcal
