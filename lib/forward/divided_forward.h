// Several devices divide the samples, not the model. Each gets a contiguous range. Extremes,
// histograms and counts of the ranges are merged in sample order, which for maxima and sums
// gives the bytes of one device. Each layer is brought for all devices before their threads
// start, so the packing has one thread and no device waits for another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/number.h"
#include "forward/layerwise.h"

namespace kvcal {

/// Samples of each part of a divided pass: ascending, each sample in one part.
struct SampleParts {
  std::vector<std::vector<size_t>> samples_of;  ///< [parts]
  std::string_view name = "part";               ///< word for a part in messages: "rank"

  /// Contiguous parts with so many samples each.
  static SampleParts behind_each_other(std::span<const size_t> counts);
};

/// Merges the results of one call of all parts; nullopt: a part without samples, and at least one
/// has some. Ranges come in the order of all samples, sums and maxima for the rest, so the result
/// equals that of one pass. Throws Error naming a part whose results do not match its samples.
LayerResult merged(std::vector<std::optional<LayerResult>> parts, const SampleParts& samples);

/// LayerForward over several backends: each runs a contiguous range of the samples in its own
/// thread, one layer at a time, which is read and packed once for all. Results are merged in sample
/// order and equal those of one backend byte for byte. Borrows what LayerwiseForward borrows.
class DividedForward : public LayerForward {
 public:
  /// backends: at least one, all of one kind. Backends without samples stay idle.
  DividedForward(const ModelConfig& config, const Weights& weights,
                 std::span<Backend* const> backends,
                 std::span<const std::span<const TokenId>> samples, const LayerwiseOptions& options,
                 Diagnostics& diagnostics);
  ~DividedForward() override;

  LayerResult run(const LayerCall& call) override;
  int64_t num_tokens() const override;
  void request(const ObservationRequest& request) override;
  void show_hidden(HiddenSink* sink) override;
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override;

  /// First sample of each range, and the number of samples: [ranges + 1]. Ranges hold about the
  /// same number of tokens and are never empty, so there may be fewer than wanted.
  static std::vector<size_t> divide(std::span<const int64_t> lengths, size_t ranges);

 private:
  class SharedDiagnostics;

  /// Runs body(i) for all parts at the same time; after all have ended, rethrows the error of the
  /// first part that failed.
  void run_parts(size_t count, const std::function<void(size_t)>& body);

  const ModelConfig& config_;
  const Weights& weights_;
  std::vector<Backend*> backends_;  ///< of parts_
  LayerwiseOptions options_;
  ObservationRequest request_;
  std::unique_ptr<SharedDiagnostics> diagnostics_;
  std::vector<size_t> begins_;                          ///< result of divide
  HiddenSink* sink_ = nullptr;                          ///< sink of the last call
  std::vector<std::unique_ptr<RenumberedSink>> sinks_;  ///< sink_ as each part sees it
  std::vector<std::unique_ptr<LayerwiseForward>> parts_;
  std::optional<LayerPrefetch> layers_;  ///< of all parts, from the first call on
};

}  // namespace kvcal
