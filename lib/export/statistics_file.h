#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/safetensors.h"
#include "core/output.h"
#include "quant/statistics.h"

namespace kvcal {

/// Writes a safetensors file: "<module>.k.ranges" F32 [samples, heads, 2] (min, max; min > max
/// where a sample had no values), "<module>.k.histogram" I64 [heads, 384], the same for v and q,
/// "<module>.k.positions" and v's F32 [buckets, 2] (quant/observations.h) where known,
/// "<module>.k.channels" and v's F32 [samples, channels, 2] where the recipe has scales of
/// channels,
/// "<module>.damage" F64 [2, heads of Q, 4] (with the run's scales and with 1.0: squared error and
/// squared length of outputs, KL of weights, queries) and "<module>.compared_scales" F32 [2, 1 or
/// heads] (K, V) where attention was compared,
/// "<input>.input.ranges" F32 [samples, 1, 2], "<input>.input.histogram" I64 [1, 384] and
/// "<input>.input.tokens" I64 [1]. Metadata holds their origin, and the SHA-256 of it all. See
/// docs/formats.md. The file appears complete or not at all. piece: of a sweep; empty: none. Throws
/// Error where it exists, unless overwrite.
void write_statistics(const std::filesystem::path& path, const Statistics& statistics,
                      bool overwrite, const std::string& piece = {});
/// write_statistics, as far as the file is not at its place yet.
std::unique_ptr<StagedOutput> stage_statistics(const std::filesystem::path& path,
                                               const Statistics& statistics, bool overwrite,
                                               const std::string& piece = {});

/// Reads such a file; modules are in the order of their names. Throws Error for a missing tensor,
/// another shape, another version of the format, a file that has changed since it was written, and
/// one of another piece; empty: of any.
Statistics read_statistics(const std::filesystem::path& path, const std::string& piece = {});

/// The SHA-256 that such a file must name: of each key of the metadata but "sha256" and its value,
/// then of each tensor's name, "F32 [3, 2, 2]" and bytes; both in the order of names, with a zero
/// byte behind each text.
std::string statistics_sha256(const SafetensorsFile& file);

}  // namespace kvcal
