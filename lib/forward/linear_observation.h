#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"
#include "family/tensor_rows.h"
#include "forward/observation_request.h"
#include "quant/magnitude_histogram.h"
#include "quant/scale.h"

namespace kvcal {

/// Input shared by one or more Linears. One role names it: kQuery (and K, V), kQueryUp, kLatentUp,
/// kOutput, kUp (and gate), kDown, kExpertUp, kExpertDown, kRouter, kSharedUp, kSharedDown,
/// kMixerIn, kMixerStates, kMixerStep, kMixerOut, kLmHead.
struct LinearInput {
  int64_t layer = 0;
  Role role;
  int64_t index = 0;  ///< of an expert
  const void* x = nullptr;
  ComputeType type = ComputeType::kFloat32;
  int64_t rows = 0, width = 0;
  /// Rows of each sample of the batch, in order; an expert may have none of a sample.
  std::span<const Segment> segments = {};
};

using LinearInputObserver = std::function<void(const LinearInput&)>;
/// Slot for the largest magnitude of a Linear's input; index: of an expert.
using AmaxSlotOf = std::function<AmaxSlot(Role role, int64_t index)>;

/// Observation of one Linear's input.
struct LinearObservation {
  Role role{};
  int64_t index = 0;  ///< of an expert
  Amax amax = {};     ///< over finite values
  uint64_t nonfinite = 0, tokens = 0;
  // With LinearDetail::kSamples:
  /// [samples]; a sample without a token has an empty range (ObservedRange). For an expert,
  /// first_nonfinite counts only the sample's tokens that were routed to it.
  std::vector<ObservedRange> ranges = {};
  MagnitudeHistogram histogram = {};
};

/// Collects observations of one layer's Linear inputs in backend memory, which is read once a
/// layer. Borrows the backend.
class LinearCollector {
 public:
  /// detail: not kNone.
  LinearCollector(const ModelConfig& config, Backend& backend, LinearDetail detail,
                  int64_t num_samples);

  bool wants_amax() const { return detail_ == LinearDetail::kAmax; }
  /// Slot into which the producer of an input folds its largest magnitude.
  AmaxSlot slot(Role role, int64_t index);
  /// Observes an input of a batch whose first sample is first_sample.
  void see(const LinearInput& input, int64_t first_sample);
  /// Observations since the last call, by role, then index. Experts that no token reached have no
  /// entry.
  std::vector<LinearObservation> take();

  /// Upper bound of its bytes, including the result of take.
  static uint64_t bytes(const ModelConfig& config, LinearDetail detail, size_t num_samples);

 private:
  struct Place {
    int64_t place = 0;
    uint64_t tokens = 0, values = 0;
  };
  Place& place_of(Role role, int64_t index);
  void reset(size_t places);
  LinearObservation observation(const std::pair<Role, int64_t>& key, const Place& at) const;

  Backend& backend_;
  LinearDetail detail_;
  int64_t capacity_, num_samples_;
  Buffer amax_, nonfinite_;     ///< [capacity_] float32 and uint64
  Buffer ranges_, histograms_;  ///< [capacity_, samples] and [capacity_, kBins]
  std::map<std::pair<Role, int64_t>, Place> places_;
};

}  // namespace kvcal
