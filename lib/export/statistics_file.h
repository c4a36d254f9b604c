#pragma once

#include <filesystem>

#include "quant/statistics.h"

namespace kvcal {

/// A safetensors file: "<module>.k.ranges" F32 [samples, heads, 2] (min, max; min > max where a
/// sample had nothing), "<module>.k.histogram" I64 [heads, 384], the same for v and q,
/// "<input>.input.ranges" F32 [samples, 1, 2], "<input>.input.histogram" I64 [1, 384] and
/// "<input>.input.tokens" I64 [1]; what they are of stands in its metadata. docs/formats.md.
/// Appears complete or not at all. Throws Error where the file exists, unless overwrite.
void write_statistics(const std::filesystem::path& path, const Statistics& statistics,
                      bool overwrite);

/// Throws Error for anything missing, of another shape, or not written by this format's version.
/// Modules are in the order of their names.
Statistics read_statistics(const std::filesystem::path& path);

}  // namespace kvcal
