#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "forward/kv_cache.h"
#include "forward/layer_runner.h"
#include "forward/linear_product.h"

namespace kvcal {

/// Steps of one token whose operations are recorded once and then played for every token. All that
/// changes from step to step (positions, the sequence's length, the row of the cache) lies in
/// buffers that stay where they are. The first step on a cache, or with other rope tables, runs as
/// it is asked for, so that all that operations set up once is there when the second is recorded.
/// Borrows config and backend.
class DecoderStep {
 public:
  DecoderStep(const ModelConfig& config, Backend& backend, ComputeType type);

  /// Whether what a step does can be known before: not where the host chooses experts or buffers
  /// grow with the sequence, nor where rope tables change with every length.
  static bool can_record(const ModelConfig& config, const Backend& backend, int64_t length);

  /// Asks for one step's operations, from the token's embedding in hidden to its logits.
  using Body = std::function<void(LayerRunner& runner, const TokenBatch& batch, float* hidden,
                                  void* normed, float* logits)>;
  /// Runs body's operations for the token behind those that cache holds. Its embedding must stand
  /// in hidden(); the logits stand in logits() then.
  void run(const KvCache& cache, const RopeTables& ropes, const Body& body);

  float* hidden() const { return hidden_.as<float>(); }
  const std::byte* logits() const { return logits_.data(); }
  /// Scratch for the products that body asks for itself; recordings keep its address.
  ProductScratch& scratch() { return scratch_; }

 private:
  using Places = std::vector<uintptr_t>;
  void place_token(const KvCache& cache, const RopeTables& ropes);
  static Places places_of(const KvCache& cache, const RopeTables& ropes);

  Backend& backend_;
  LayerRunner runner_;
  Buffer hidden_;  ///< [1, hidden_size] float32
  Buffer normed_;  ///< [1, hidden_size] of type
  Buffer logits_;  ///< [1, vocab_size] float32
  ProductScratch scratch_;
  Buffer current_;  ///< Segment, int64 row of the cache, int32 row of each rope's table
  TokenBatch batch_;
  /// Null after the first step; oldest first.
  std::vector<std::pair<Places, std::unique_ptr<Recording>>> recordings_;
};

}  // namespace kvcal
