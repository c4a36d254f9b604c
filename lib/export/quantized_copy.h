#pragma once

#include <filesystem>

#include "export/writer.h"

namespace kvcal {

/// Writes the model's weights into folder, those of the plan quantized, with their scales in the
/// form of parts.weights and the tensors of parts. Shards keep their names. Each scale lies in the
/// shard of its module, or all lie in one shard (input.shares_weights); the index is made anew.
/// Weights that are not quantized, or are FP8 already (Calibration::stored_weights), are copied by
/// range.
/// For each shard the scales are computed first; then all threads of input.pool make codes while
/// they are written. Peak memory: the source pages of one weight, the scales of a shard, and two
/// buffers. The bytes do not depend on the number of threads. first: an output whose weights are
/// linked. Throws Error naming the weight, also for NaN and infinity in it.
WrittenCheckpoint write_quantized_weights(const ExportInput& input, const FormatParts& parts,
                                          const std::filesystem::path& folder,
                                          const WrittenCheckpoint* first);

}  // namespace kvcal
