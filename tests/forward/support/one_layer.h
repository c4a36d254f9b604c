#pragma once

#include <cstdint>
#include <utility>

#include "forward/layer_context.h"

namespace kvcal::test {

/// A layer without weights on a batch of `rows` rows in float32. A test gives it the weights of the
/// operation that it runs, and calls that operation with `context`, which points to the members.
struct OneLayer {
  OneLayer(ModelConfig of, int64_t index, int64_t rows, Backend& own)
      : config(std::move(of)),
        backend(own),
        context{.config = config,
                .backend = backend,
                .type = ComputeType::kFloat32,
                .most_rows = rows,
                .buffers = {config, backend, ComputeType::kFloat32}} {
    context.buffers.reserve(Reserved::kBatch, rows);
    batch.num_tokens = rows;
    context.layer = &layer;
    context.layer_index = index;
    context.batch = &batch;
  }
  OneLayer(const OneLayer&) = delete;
  OneLayer& operator=(const OneLayer&) = delete;

  /// Values of one [rows, hidden_size] plane of the residual streams.
  int64_t plane() const { return batch.num_tokens * config.hidden_size; }

  ModelConfig config;
  Backend& backend;
  PackedLayer layer;
  TokenBatch batch;
  LayerContext context;
};

}  // namespace kvcal::test
