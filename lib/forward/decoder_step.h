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

/// Decoding steps of one token, recorded once and replayed for every token. Values that change
/// between steps (positions, sequence length, row of the cache) lie in buffers with fixed
/// addresses. The first step on a cache, or with other rope tables, runs unrecorded, so that
/// one-time setup is done before the second step is recorded. Borrows config and backend.
class DecoderStep {
 public:
  DecoderStep(const ModelConfig& config, Backend& backend, ComputeType type);

  /// Whether a step can be recorded. It cannot where the host chooses experts, where buffers grow
  /// with the sequence, or where rope tables change with the length.
  static bool can_record(const ModelConfig& config, const Backend& backend, int64_t length);

  /// Issues the operations of one step, from the token's embedding in hidden to its logits.
  using Body = std::function<void(LayerRunner& runner, const TokenBatch& batch, float* hidden,
                                  void* normed, float* logits)>;
  /// Runs body for the token after those in cache. hidden() must hold its embedding; logits() then
  /// holds its logits.
  void run(const KvCache& cache, const RopeTables& ropes, const Body& body);

  float* hidden() const { return hidden_.as<float>(); }
  const std::byte* logits() const { return logits_.data(); }
  /// Scratch for products that body issues itself; recordings keep its address.
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
