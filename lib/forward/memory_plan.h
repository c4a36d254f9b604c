// The memory limit is the process's. Mapped pages of files count as its memory, so those of
// weights are released after each matrix, those of the embedding after some hundred tokens,
// those of spilled hidden states after each batch. The plan adds up the known needs before the
// work begins and refuses a run that cannot fit, naming the smallest sufficient limit. Without
// --memory-limit the limit is the control group's or the machine's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "forward/layerwise.h"
#include "stored/weights.h"

namespace kvcal {

/// Upper bounds, in bytes, of the memory of a layerwise forward pass, without the hidden states of
/// all tokens. The limit is on the process's memory on a host, on the device's memory on a device.
struct MemoryNeeds {
  uint64_t process = 0;    ///< on a host: memory of the process beside the pass
  uint64_t layers = 0;     ///< packed matrices, of all layers held at one time
  uint64_t packing = 0;    ///< on a host: the source matrix being packed, and copies
  uint64_t tables = 0;     ///< on a host: RoPE tables, positions and observations
  uint64_t per_token = 0;  ///< of a batch: activations, K and V, on a host hidden states

  uint64_t with_batch(int64_t tokens) const {
    return process + layers + packing + tables + per_token * static_cast<uint64_t>(tokens);
  }
};

/// Upper bound of the bytes of the matrices that pack_layer makes for the largest layer.
uint64_t packed_layer_bytes(const ModelConfig& config, ComputeType type);

/// sample_lengths: in tokens.
MemoryNeeds memory_needs(const ModelConfig& config, const Weights& weights, const Backend& backend,
                         const LayerwiseOptions& options, std::span<const int64_t> sample_lengths);

/// Division of the memory.
class MemoryPlan {
 public:
  /// Throws Error, with the bytes needed, where the memory cannot hold one layer and the longest
  /// sample.
  MemoryPlan(const ModelConfig& config, const Weights& weights, const Backend& backend,
             const LayerwiseOptions& options, std::span<const int64_t> sample_lengths);

  /// Tokens of a batch: as many as requested or as fit, but at least those of the longest sample.
  int64_t batch_tokens() const { return batch_tokens_; }
  /// Bytes of the backend's memory for hidden states beside such batches; nullopt: no limit.
  std::optional<uint64_t> hidden_bytes(int64_t longest_batch) const;
  /// Bytes of the backend's memory that nothing takes, beside layers, such batches and the hidden
  /// states; nullopt: no limit. are_held: the backend's memory holds these, of so many floats.
  std::optional<uint64_t> room_beside(int64_t longest_batch, int64_t hidden_floats,
                                      bool are_held) const;
  /// The same until the first layer is packed; without a limit only the layers' room.
  uint64_t room_before_layers(int64_t longest_batch, int64_t hidden_floats, bool are_held) const;
  /// The user gave no limit: it is the memory that the process can get.
  bool is_limit_found() const { return is_limit_found_; }
  std::optional<uint64_t> limit() const { return limit_; }

 private:
  MemoryNeeds needs_;
  std::optional<uint64_t> limit_;
  bool is_limit_found_ = false;
  int64_t batch_tokens_ = 0;
};

}  // namespace kvcal
