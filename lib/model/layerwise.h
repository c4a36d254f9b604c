#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/diagnostics.h"
#include "core/file.h"
#include "model/layer_runner.h"
#include "quant/calibration.h"

namespace kvcal {

struct LayerwiseOptions {
  ComputeType compute_type = ComputeType::kFloat32;
  int64_t batch_tokens = 0;  ///< tokens that go through a layer together; 0: as the backend likes
  std::optional<uint64_t> memory_limit =
      {};                        ///< bytes; hidden states past it live in a scratch file
  fs::path scratch_folder = {};  ///< where that file goes
};

/// What K and V of one layer were over all samples. ranges are [samples, cache_heads].
struct KvObservation {
  std::vector<ObservedRange> ranges;
  std::vector<MagnitudeHistogram> histograms;  ///< [cache_heads]
};
struct LayerObservation {
  KvObservation k, v;
};

/// How K and V are stored for attention: one scale a head, [cache_heads].
struct KvQuantization {
  KvDType dtype = KvDType::kFp8E4m3;
  std::vector<float> k_scales, v_scales;
};

/// Values that were clipped while stored, summed over heads.
struct SaturationCounts {
  uint64_t k = 0, v = 0;
};

/// A forward pass of many samples with the layer as the outer loop: bring a layer's weights, push
/// every batch through it, drop them. The peak is one packed layer, the activations of one batch
/// and the hidden states. Call for each layer in order: observe, then one of the advances.
class LayerwiseForward {
 public:
  /// samples are borrowed for the constructor only. Throws Error when the memory limit cannot hold
  /// one layer.
  LayerwiseForward(const ModelConfig& config, const Weights& weights, Backend& backend,
                   std::span<const std::span<const TokenId>> samples,
                   const LayerwiseOptions& options, Diagnostics& diagnostics);
  ~LayerwiseForward();

  /// K after RoPE and V of every sample, unquantized.
  LayerObservation observe(int64_t layer);
  /// What quantization clips of this layer's K and V; only before the layer is advanced.
  SaturationCounts count_saturated(int64_t layer, const KvQuantization& quantization);
  /// The rest of the layer, whose attention reads K and V as quantization stores them.
  SaturationCounts advance(int64_t layer, const KvQuantization& quantization);
  /// The rest of the layer, whose attention reads K and V unquantized.
  void advance_exact(int64_t layer);
  /// A layer whose tokens are mixed without K and V.
  void advance_without_attention(int64_t layer);
  /// observe and advance_exact in one pass.
  LayerObservation observe_and_advance_exact(int64_t layer);

  int64_t num_tokens() const { return num_tokens_; }
  /// Is shown every Linear's input of the layers that run from now on.
  void observe_linear_inputs(LinearInputObserver observer);

 private:
  struct Storage;
  struct Observers;
  struct SampleBatch {
    TokenBatch tokens;
    int64_t first_token = 0, first_sample = 0;
  };

  void make_batches(std::span<const std::span<const TokenId>> samples, int64_t batch_tokens);
  void reserve_hidden(const LayerwiseOptions& options);
  void embed(std::span<const std::span<const TokenId>> samples);
  void bring_layer(int64_t layer, LayerParts parts);
  float* hidden_of(const SampleBatch& batch) const;
  /// Share of a layer's work that a pass stands for in the progress.
  enum class Share { kFirstHalf, kSecondHalf, kWhole, kNone };
  void report(const SampleBatch& batch, Share share);
  /// What one pass over a layer does with K and V.
  struct Pass {
    const Observers* observers = nullptr;
    const Storage* storage = nullptr;
    bool finishes = false;  ///< the rest of the layer, whose attention reads storage
  };
  void run_batches(Share share, const Pass& pass);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  Diagnostics& diagnostics_;
  ComputeType type_;
  int64_t num_tokens_ = 0, num_samples_ = 0, longest_batch_ = 0;
  std::vector<SampleBatch> batches_;
  std::unique_ptr<RopeTables> ropes_;
  std::unique_ptr<LayerRunner> runner_;
  Buffer hidden_buffer_;
  std::optional<ScratchMapping> hidden_scratch_;
  PackedLayer packed_;
  int64_t packed_index_ = -1;
  LayerParts packed_parts_ = LayerParts::kKeyValue;
};

}  // namespace kvcal
