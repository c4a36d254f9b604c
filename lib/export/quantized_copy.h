#pragma once

#include <filesystem>

#include "export/writer.h"

namespace kvcal {

/// Writes the model's weights into folder, those of the plan quantized, with their scales in the
/// format of parts.weights and the tensors of parts. Every loader reads the layouts: transformers
/// takes model.safetensors without an index; vLLM, SGLang and TGI take the files in the folder.
/// - Shards keep their names, and the index is made anew. A model of one file stays one file: a new
///   header, then the weights.
/// - Each scale lies in the shard of its module. All lie in one shard more where
/// input.shares_weights
///   says so, or where the model has shards and no weight is quantized: then its shards stay as
///   they are.
/// - Weights that are not quantized, or are FP8 already (Calibration::stored_weights), are copied
/// by
///   range, shards where nothing changes whole.
/// For each shard the scales are computed first; then all threads of input.pool make codes while
/// they are written. Peak memory: the source pages of one weight, the scales of a shard, and two
/// buffers. The bytes do not depend on the number of threads. first: an output whose weights are
/// linked where the file system can, else copied. Throws Error naming the weight, also for NaN and
/// infinity in it.
WrittenCheckpoint write_weights(const ExportInput& input, const FormatParts& parts,
                                const std::filesystem::path& folder,
                                const WrittenCheckpoint* first);

}  // namespace kvcal
