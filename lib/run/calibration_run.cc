#include "run/calibration_run.h"

#include <algorithm>
#include <numeric>

#include "calib/statistics.h"
#include "forward/divided_forward.h"
#include "ranks/exchanged_layers.h"
#include "ranks/ranked_forward.h"
#include "run/process_limit.h"
#include "state/resumable_forward.h"
#include "stored/weights.h"

namespace kvcal {

namespace {

/// Makes forward passes over samples of a run. Borrows.
class ForwardMaker {
 public:
  ForwardMaker(const CalibrationSubject& subject, const CalibrationRun& run,
               const CalibrationOptions& options)
      : subject_(subject),
        run_(run),
        observation_(observation_of(subject.plan, options)),
        weights_(in_context(subject.model_dir.given_path().string(),
                            [&] { return Weights(subject.model_dir, subject.config); })) {}
  ~ForwardMaker() { count_bytes(); }
  ForwardMaker(const ForwardMaker&) = delete;
  ForwardMaker& operator=(const ForwardMaker&) = delete;

  /// Makes the forward pass, which borrows the arguments.
  std::unique_ptr<LayerForward> make(std::span<const Sample> samples,
                                     Diagnostics& diagnostics) const {
    if (!run_.state) return make_forward(samples, /*is_restored=*/false, diagnostics);
    return std::make_unique<ResumableForward>(*run_.state, subject_.config, lengths_of(samples),
                                              [=, this, &diagnostics](bool restored) {
                                                return make_forward(samples, restored, diagnostics);
                                              });
  }

  /// Adds the rank that holds the record to the error, where there are several ranks.
  void name_owner(NotFinite& error) const {
    const auto sample = std::ranges::find(samples_, error.record(), &Sample::index);
    if (!run_.ranked || sample == samples_.end()) return;
    const int owner = assignment_.rank_of.at(static_cast<size_t>(sample - samples_.begin()));
    error.add_context(run_.ranked->ranks->name_of(owner));
  }

 private:
  std::unique_ptr<LayerForward> make_forward(std::span<const Sample> samples, bool is_restored,
                                             Diagnostics& diagnostics) const {
    LayerwiseOptions layerwise = run_.layerwise;
    layerwise.observation = observation_;
    layerwise.is_restored = is_restored;
    layerwise.shows_hidden = run_.state != nullptr;
    // Memory that earlier passes left behind counts for the process, too.
    if (run_.backends.at(0)->is_host())
      set_process_memory(layerwise, subject_.config, run_.threads);
    if (run_.ranked) return make_ranked(samples, layerwise, diagnostics);
    std::vector<std::span<const TokenId>> ids;
    for (const Sample& sample : samples) ids.emplace_back(sample.ids);
    return make_local(ids, layerwise, diagnostics);
  }

  std::unique_ptr<LayerForward> make_local(std::span<const std::span<const TokenId>> ids,
                                           const LayerwiseOptions& layerwise,
                                           Diagnostics& diagnostics) const {
    return std::make_unique<DividedForward>(subject_.config, weights_, run_.backends, ids,
                                            layerwise, diagnostics);
  }

  /// This rank's part of the samples; null where there are fewer samples than ranks.
  std::unique_ptr<LayerForward> make_ranked(std::span<const Sample> samples,
                                            LayerwiseOptions layerwise,
                                            Diagnostics& diagnostics) const {
    Communicator& ranks = *run_.ranked->ranks;
    samples_ = samples;
    const std::vector<int64_t> lengths = lengths_of(samples);
    const SampleWork work = sample_work(subject_.config, weights_);
    assignment_ = assign_samples(lengths, work, ranks.size());
    std::vector<std::span<const TokenId>> own;
    std::vector<int64_t> own_lengths;
    for (const size_t sample : assignment_.samples_of.at(static_cast<size_t>(ranks.rank()))) {
      own.emplace_back(samples[sample].ids);
      own_lengths.push_back(lengths[sample]);
    }
    count_work(own_lengths, work);
    const size_t devices = DividedForward::divide(own_lengths, run_.backends.size()).size() - 1;
    count_bytes();
    bytes_ = make_layer_bytes(run_.ranked->mode, ranks, subject_.model_dir, weights_, !own.empty(),
                              static_cast<int>(devices));
    layerwise.layer_bytes = bytes_.get();
    if (run_.ranked->mode == WeightsMode::kExchange)
      layerwise.process_bytes += ExchangedLayers::largest_bytes(subject_.model_dir, weights_);
    diagnostics_ = std::make_unique<RankDiagnostics>(
        diagnostics, ranks, std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    std::unique_ptr<LayerForward> local;
    if (!own.empty()) local = make_local(own, layerwise, *diagnostics_);
    return std::make_unique<RankedForward>(std::move(local), ranks, assignment_, lengths,
                                           bytes_.get());
  }

  void count_work(std::span<const int64_t> lengths, const SampleWork& each) const {
    RankWork* work = run_.ranked->work;
    if (!work) return;
    work->samples += std::ssize(lengths);
    for (const int64_t length : lengths) {
      work->tokens += length;
      work->flop += each.of(length);
    }
  }

  /// Counts the bytes that the previous pass read.
  void count_bytes() const {
    if (bytes_ && run_.ranked->work) run_.ranked->work->bytes_read += bytes_->bytes_read();
  }

  const CalibrationSubject& subject_;
  const CalibrationRun& run_;
  ObservationRequest observation_;
  Weights weights_;
  // Borrowed by the last pass that was made, where there are several ranks.
  mutable std::span<const Sample> samples_;
  mutable SampleAssignment assignment_;
  mutable std::unique_ptr<RankLayerBytes> bytes_;
  mutable std::unique_ptr<RankDiagnostics> diagnostics_;
};

/// Returns the result of body; adds the owning rank to a NotFinite error.
template <class Body>
auto naming_owner(const ForwardMaker& forwards, const Body& body) {
  try {
    return body();
  } catch (NotFinite& error) {
    forwards.name_owner(error);
    throw;
  }
}

}  // namespace

Calibration measure(const CalibrationSubject& subject, const CalibrationRun& run,
                    const CalibrationOptions& options, Statistics* kept, Diagnostics& diagnostics) {
  const ForwardMaker forwards(subject, run, options);
  return naming_owner(forwards, [&] {
    return calibrate(*forwards.make(run.samples, diagnostics), subject.config, subject.plan,
                     run.samples, options, kept, diagnostics);
  });
}

StableCalibration measure_until_stable(const CalibrationSubject& subject, const CalibrationRun& run,
                                       const CalibrationOptions& options, const StopRule& rule,
                                       Statistics* kept, Diagnostics& diagnostics) {
  const ForwardMaker forwards(subject, run, options);
  return naming_owner(forwards, [&] {
    return calibrate_until_stable([&](std::span<const Sample> samples,
                                      Diagnostics& told) { return forwards.make(samples, told); },
                                  subject.config, subject.plan, run.samples, options, rule, kept,
                                  diagnostics);
  });
}

}  // namespace kvcal
