#pragma once

#include <map>
#include <span>

#include "datasets/dataset.h"
#include "ranks/local_layers.h"
#include "state/weight_hashes.h"

namespace kvcal {

/// Hashes of the weights of a run whose state is kept, each made once. Those of layers that a pass
/// packs are made by the thread that packs them, just before. Borrows the weights.
class RunHashes : public WeightHashes {
 public:
  explicit RunHashes(const Weights& weights) : weights_(weights), local_(weights) {}

  /// A pass over these samples begins.
  void begin(std::span<const Sample> samples);
  /// Source of layers for a pass of this process alone.
  LayerBytes* local() { return &local_; }
  /// The source of layers of a pass with ranks, which lives as long as the pass; null: this rank
  /// packs none.
  void take_packed(const RankLayerBytes* packed) { packed_ = packed; }

  uint64_t of_model() override { return of_model_; }
  uint64_t packed(int64_t layer) override;
  uint64_t stored(int64_t layer) override;

 private:
  const Weights& weights_;
  LocalLayers local_;
  const RankLayerBytes* packed_ = &local_;
  uint64_t of_model_ = 0;
  std::map<int64_t, uint64_t> stored_;
};

}  // namespace kvcal
