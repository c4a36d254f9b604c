#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/diagnostics.h"
#include "core/json.h"
#include "core/parallel.h"
#include "export/weights_by_name.h"
#include "recipe/presets.h"

namespace kvcal {

/// Input of write_packed_weights. Borrows from its owners.
struct PackedCopyInput {
  const ModelDir& model;
  const WeightsByName& found;
  const WeightScheme& scheme;
  ThreadPool& pool;
  Diagnostics& progress;
};

/// Writes the model's weights into folder, those found quantized by rounding, in the format that
/// compressed-tensors stores the scheme in; all others are copied by range. Shards keep their
/// names, and each weight's scales lie in its shard. For each shard the scales are made first; then
/// all threads make codes while they are written. Peak memory: the source pages of one weight, the
/// scales of a shard, and two buffers. The bytes do not depend on the number of threads. Throws
/// Error naming the weight, also for NaN and infinity in it.
void write_packed_weights(const PackedCopyInput& input, const std::filesystem::path& folder);

/// config.json's quantization_config of such an output. Source: llm-compressor 0.14
/// `ModelFreePtqConverter.update_config`.
Json packed_config(const WeightScheme& scheme, const std::vector<std::string>& ignore);

/// Notes for the user, a sentence each, on quantized weights that engines run otherwise than
/// llm-compressor's format says.
std::vector<std::string> packed_notes(const WeightsByName& found, const WeightScheme& scheme);

}  // namespace kvcal
