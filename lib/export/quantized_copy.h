#pragma once

#include <filesystem>

#include "export/writer.h"

namespace kvcal {

/// Writes the model's weights into folder with those of the plan quantized, their scales in the
/// form of parts.weights, and the parts' tensors: shard by shard under its name, every scale in the
/// shard of its module, or all in one of their own (input.shares_weights); the index made anew.
/// What is not quantized, or is FP8 already (Calibration::stored_weights), is copied by range. Of a
/// shard the scales are computed first, and then codes are made as they are written, by all threads
/// of input.pool: at any time memory holds one weight's pages of the source, the scales of a shard,
/// and two buffers. Same bytes for any number of threads. first: an output whose weights are
/// linked. Throws Error naming the weight, for NaN and infinity in it too.
WrittenCheckpoint write_quantized_weights(const ExportInput& input, const FormatParts& parts,
                                          const std::filesystem::path& folder,
                                          const WrittenCheckpoint* first);

}  // namespace kvcal
