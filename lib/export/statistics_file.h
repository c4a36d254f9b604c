#pragma once

#include <filesystem>

#include "quant/statistics.h"

namespace kvcal {

/// Writes a safetensors file: "<module>.k.ranges" F32 [samples, heads, 2] (min, max; min > max
/// where a sample had no values), "<module>.k.histogram" I64 [heads, 384], the same for v and q,
/// "<module>.k.positions" and v's F32 [buckets, 2] (quant/position_buckets.h) where known,
/// "<input>.input.ranges" F32 [samples, 1, 2], "<input>.input.histogram" I64 [1, 384] and
/// "<input>.input.tokens" I64 [1]. Metadata holds their origin. See docs/formats.md. The file
/// appears complete or not at all. Throws Error where it exists, unless overwrite.
void write_statistics(const std::filesystem::path& path, const Statistics& statistics,
                      bool overwrite);

/// Reads such a file; modules are in the order of their names. Throws Error for a missing tensor,
/// another shape, or another version of the format.
Statistics read_statistics(const std::filesystem::path& path);

}  // namespace kvcal
