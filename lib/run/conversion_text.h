#pragma once

#include <string>

#include "run/convert_checkpoint.h"

namespace kvcal {

/// A conversion in words and tables, as lines for a terminal: the source of scales and weights,
/// then for each format what its layers lose. A table of more than most_rows rows has a summary
/// instead.
std::string conversion_text(const ConversionResult& result, size_t most_rows);

}  // namespace kvcal
