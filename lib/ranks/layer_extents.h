#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_dir.h"
#include "stored/weights.h"

namespace kvcal {

/// Whole pages of one of a model's files.
struct FileExtent {
  size_t shard = 0;  ///< of ModelDir::shards
  uint64_t begin = 0, end = 0;
};

/// The pages that hold a layer's tensors, by shard and place, none twice. The last of a file may
/// end behind it.
std::vector<FileExtent> layer_extents(const ModelDir& model_dir, const Weights& weights,
                                      int64_t layer);

/// A hash of the bytes of a layer's tensors, which it reads once, a few megabytes at a time.
/// Never 0.
uint64_t layer_hash(const Weights& weights, int64_t layer);
/// Bytes of a layer's tensors.
uint64_t layer_size(const Weights& weights, int64_t layer);

}  // namespace kvcal
