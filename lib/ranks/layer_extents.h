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

/// Pages that hold a layer's tensors, by shard and offset, without duplicates. The last page may
/// extend beyond the end of the file.
std::vector<FileExtent> layer_extents(const ModelDir& model_dir, const Weights& weights,
                                      int64_t layer);

/// Hash of the bytes of a layer's tensors, read once, a few megabytes at a time. Never 0.
uint64_t layer_hash(const Weights& weights, int64_t layer);
/// Bytes of a layer's tensors.
uint64_t layer_size(const Weights& weights, int64_t layer);

}  // namespace kvcal
