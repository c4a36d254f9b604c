#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/model_dir.h"
#include "core/parallel.h"
#include "rewrite/kv_factors.h"
#include "rewrite/outliers.h"

namespace kvcal {

struct RewrittenCheckpoint {
  int64_t changed = 0;  ///< tensors with other values
  int64_t widened = 0;  ///< of them, those written as F32, since their dtype cannot hold the values
  int64_t rounded = 0;  ///< of them, those of 16 bits whose values a turn or a factor rounds anew
  int64_t added = 0;    ///< biases that the source has none of
  /// Largest |written / wanted - 1| of changed values: not 0 only where a norm adds 1.
  double largest_error = 0.0;
};

/// Throws Error where the checkpoint's weights are quantized.
void check_can_be_rewritten(const ModelDir& model);

/// Writes a checkpoint into folder whose K and V have the factors, with model's config() and the
/// files beside the weights. Shards keep their names. A tensor that powers of two change keeps its
/// dtype where every value is exact in it, and is F32 else; one whose pairs turn, or that gets
/// other factors, is rounded to its dtype, and F32 where that cannot hold a value. Biases that
/// config expects and the source does not have are zeros. Memory: mapped pages and the buffers of
/// the writer. Throws Error naming the tensor, also for values that leave float32's range.
RewrittenCheckpoint write_rewritten_checkpoint(const ModelDir& model, const ModelConfig& config,
                                               const KvFactors& factors, ThreadPool& pool,
                                               const std::filesystem::path& folder);

struct OutlierRequest {
  OutlierSpec outliers;
  uint64_t seed = 0;
  FamilyChoice family = {};
};

/// write_rewritten_checkpoint of model with these outliers. For a bias of K, config.json may get
/// "attention_bias": true. Throws Error where the weights are quantized or the family cannot have
/// the outliers.
RewrittenCheckpoint write_outliers(ModelDir model, const OutlierRequest& request, ThreadPool& pool,
                                   const std::filesystem::path& folder);

}  // namespace kvcal
