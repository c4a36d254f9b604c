// A state keeps the results of calls, not what follows from them. A resumed run derives the
// scales again with the same code; only hidden states must be restored. A HiddenSink gets them
// sample by sample, so one process can resume a run of eight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/error.h"
#include "forward/layer_forward.h"
#include "state/run_state.h"

namespace kvcal {

/// Hashes of the weights that a forward pass reads, which its record keeps: a run that goes on must
/// read the same. Never 0.
class WeightHashes {
 public:
  virtual ~WeightHashes() = default;
  /// Of what the pass reads outside of the layers.
  virtual uint64_t of_model() = 0;
  /// Of a layer that the pass has run, as it was packed.
  virtual uint64_t packed(int64_t layer) = 0;
  /// Of a layer as the files hold it now.
  virtual uint64_t stored(int64_t layer) = 0;
};

/// An Error of weights that are not those of the run that a state is of.
class ChangedWeights : public Error {
 public:
  using Error::Error;
};

/// A forward pass whose calls a RunState records. Calls of an earlier run are answered from the
/// record; the new pass then starts from the hidden states after them. Borrows the state.
class ResumableForward : public LayerForward {
 public:
  /// make: makes the pass when a call first needs it; is_restored: hidden states will be restored.
  /// lengths: of all samples, in tokens. config: borrowed, to check recorded results. hashes:
  /// borrowed; null: weights are not checked. Throws ChangedWeights, as calls do where the weights
  /// of a recorded layer have changed.
  using Make = std::function<std::unique_ptr<LayerForward>(bool is_restored)>;
  ResumableForward(RunState& state, const ModelConfig& config, std::vector<int64_t> lengths,
                   Make make, WeightHashes* hashes = nullptr);
  /// Waits until nobody reads the pass's hidden states any longer.
  ~ResumableForward() override;

  void request(const ObservationRequest& request) override;
  LayerResult run(const LayerCall& call) override;
  int64_t num_tokens() const override;
  void show_hidden(HiddenSink* sink) override;
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override;

 private:
  LayerForward& forward();
  /// Ends the layer whose last pass has run, if any.
  void end_open_layer();
  /// A call's record: the hash of the weights that it has read, and its result.
  std::vector<std::byte> record_of(int64_t layer, const LayerResult& result);
  void check_weights(int64_t layer, uint64_t then);
  // Checks kept results: throws Error where they are of other samples or another model.
  // Throw Error where a recorded result of a layer has other heads or samples than this run.
  void check(const LayerObservation& seen, int64_t layer) const;
  void check(const LayerAdvance& advance, int64_t) const { check(advance.linears); }
  void check(const LinearObservation& seen, int64_t) const { check(seen); }
  void check(const SaturationCounts&, int64_t) const {}
  void check(const AttentionComparison& comparison, int64_t layer) const;
  void check(const LinearObservation& seen) const;
  void check(const std::vector<LinearObservation>& linears) const;
  void check(std::string_view what, const KvObservation& seen, int64_t heads) const;

  RunState& state_;
  const ModelConfig& config_;
  std::vector<int64_t> lengths_;
  Make make_;
  WeightHashes* hashes_;
  ObservationRequest request_;
  std::optional<int64_t> open_layer_;      ///< whose hidden states are complete, but not saved
  std::unique_ptr<LayerForward> forward_;  ///< null: no call has needed it yet
};

}  // namespace kvcal
