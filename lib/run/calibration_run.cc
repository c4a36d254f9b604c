#include "run/calibration_run.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "calib/statistics/observed_statistics.h"
#include "forward/divided_forward.h"
#include "ranks/ranked_forward.h"
#include "run/devices.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// The bytes of layers and the diagnostics of one rank's pass.
struct RankedParts {
  RankedParts(std::unique_ptr<RankLayerBytes> layer_bytes, Diagnostics& all,
              const RankedRun& ranked, int64_t all_tokens)
      : bytes(std::move(layer_bytes)),
        diagnostics(all, *ranked.ranks, all_tokens),
        work(ranked.work) {}
  RankedParts(const RankedParts&) = delete;
  RankedParts& operator=(const RankedParts&) = delete;
  ~RankedParts() {
    if (bytes && work) work->bytes_read += bytes->bytes_read();
  }

  std::unique_ptr<RankLayerBytes> bytes;
  RankDiagnostics diagnostics;
  RankWork* work;
};

struct RankedPartsOwner {
  std::unique_ptr<RankedParts> parts;
};

/// A RankedForward that owns its parts, which outlive the forward pass that borrows them.
class RankedPass : private RankedPartsOwner, public RankedForward {
 public:
  RankedPass(std::unique_ptr<RankedParts> owned, std::unique_ptr<LayerForward> local,
             Communicator& ranks, SampleAssignment assignment, std::span<const int64_t> lengths)
      : RankedPartsOwner{std::move(owned)},
        RankedForward(std::move(local), ranks, std::move(assignment), lengths, parts->bytes.get()) {
  }
};

/// Makes forward passes over samples of a run. Borrows.
class ForwardMaker {
 public:
  ForwardMaker(const PlannedModel& subject, const CalibrationRun& run,
               const CalibrationOptions& options)
      : subject_(subject),
        run_(run),
        observation_(observation_of(subject.plan, options)),
        weights_(in_context(subject.model_dir.given_path().string(), [&] {
          return Weights(subject.model_dir, subject.config, &subject.quantization);
        })) {}

  /// The samples are borrowed by the forward pass, which borrows this.
  std::unique_ptr<LayerForward> make(std::span<const Sample> samples, Diagnostics& diagnostics) {
    samples_ = samples;
    if (!run_.state) return make_forward(samples, /*is_restored=*/false, diagnostics);
    hashes_.begin(samples);
    return std::make_unique<ResumableForward>(
        *run_.state, subject_.config, lengths_of(samples),
        [=, this, &diagnostics](bool restored) {
          return make_forward(samples, restored, diagnostics);
        },
        &hashes_);
  }

  /// Adds the rank that had the record in the last pass; nothing where there is one rank.
  void name_owner(NotFinite& error) const {
    const auto sample = std::ranges::find(samples_, error.record(), &Sample::index);
    if (!run_.ranked || sample == samples_.end()) return;
    const int owner =
        assigned(lengths_of(samples_)).rank_of.at(static_cast<size_t>(sample - samples_.begin()));
    error.add_context(run_.ranked->ranks->name_of(owner));
  }

 private:
  SampleAssignment assigned(std::span<const int64_t> lengths) const {
    return assign_samples(lengths, sample_work(subject_.config, weights_),
                          run_.ranked->ranks->size());
  }

  std::unique_ptr<LayerForward> make_forward(std::span<const Sample> samples, bool is_restored,
                                             Diagnostics& diagnostics) const {
    LayerwiseOptions layerwise = run_.layerwise;
    layerwise.observation = observation_;
    layerwise.is_restored = is_restored;
    layerwise.shows_hidden = run_.state != nullptr;
    layerwise.longest_sample = longest_of(samples);
    // Memory that earlier passes left in the process counts, too.
    if (run_.backends.at(0)->is_host())
      set_process_memory(layerwise, subject_.config, run_.threads);
    if (run_.ranked) return make_ranked(samples, layerwise, diagnostics);
    if (run_.state) layerwise.layer_bytes = hashes_.local();
    layerwise.embedded = embedded_of(samples);
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
    const RankedRun& ranked = *run_.ranked;
    Communicator& ranks = *ranked.ranks;
    const std::vector<int64_t> lengths = lengths_of(samples);
    SampleAssignment assignment = assigned(lengths);
    std::vector<std::span<const TokenId>> own;
    std::vector<int64_t> own_lengths;
    const std::vector<const EmbeddedTokens*> embedded = embedded_of(samples);
    for (const size_t sample : assignment.samples_of.at(static_cast<size_t>(ranks.rank()))) {
      own.emplace_back(samples[sample].ids);
      own_lengths.push_back(lengths[sample]);
      if (!embedded.empty()) layerwise.embedded.push_back(embedded[sample]);
    }
    count_work(own_lengths);
    auto parts = std::make_unique<RankedParts>(
        make_layer_bytes(ranked.mode, ranks, subject_.model_dir, weights_, !own.empty()),
        diagnostics, ranked, std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    layerwise.layer_bytes = parts->bytes.get();
    hashes_.take_packed(parts->bytes.get());
    if (ranked.mode == WeightsMode::kExchange)
      layerwise.process_bytes += ExchangedLayers::largest_bytes(subject_.model_dir, weights_);
    std::unique_ptr<LayerForward> local;
    if (!own.empty()) local = make_local(own, layerwise, parts->diagnostics);
    return std::make_unique<RankedPass>(std::move(parts), std::move(local), ranks,
                                        std::move(assignment), lengths);
  }

  void count_work(std::span<const int64_t> lengths) const {
    RankWork* work = run_.ranked->work;
    if (!work) return;
    const SampleWork each = sample_work(subject_.config, weights_);
    work->samples += std::ssize(lengths);
    for (const int64_t length : lengths) {
      work->tokens += length;
      work->flop += each.of(length);
    }
  }

  const PlannedModel& subject_;
  const CalibrationRun& run_;
  ObservationRequest observation_;
  Weights weights_;
  mutable RunHashes hashes_{weights_};
  std::span<const Sample> samples_;  ///< of the last pass
};

/// Calls body; a NaN that it meets is reported with the rank that has its sample.
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

Calibration calibrate_samples(const PlannedModel& subject, const CalibrationRun& run,
                              const CalibrationOptions& options, Statistics* kept,
                              Diagnostics& diagnostics) {
  ForwardMaker forwards(subject, run, options);
  return naming_owner(forwards, [&] {
    return calibrate(*forwards.make(run.samples, diagnostics), subject.config, subject.plan,
                     run.samples, options, kept, diagnostics);
  });
}

StableCalibration calibrate_samples_until_stable(const PlannedModel& subject,
                                                 const CalibrationRun& run,
                                                 const CalibrationOptions& options,
                                                 const StopRule& rule, Statistics* kept,
                                                 Diagnostics& diagnostics) {
  ForwardMaker forwards(subject, run, options);
  return naming_owner(forwards, [&] {
    return calibrate_until_stable([&](std::span<const Sample> samples,
                                      Diagnostics& told) { return forwards.make(samples, told); },
                                  subject.config, subject.plan, run.samples, options, rule, kept,
                                  diagnostics);
  });
}

void RunHashes::begin(std::span<const Sample> samples) {
  std::set<TokenId> ids;
  for (const Sample& sample : samples) ids.insert(sample.ids.begin(), sample.ids.end());
  of_model_ = model_hash(weights_, ids);
}

uint64_t RunHashes::packed(int64_t layer) {
  const uint64_t hash = packed_ ? packed_->hash(layer) : 0;
  return hash != 0 ? hash : stored(layer);
}

uint64_t RunHashes::stored(int64_t layer) {
  const auto [found, is_new] = stored_.try_emplace(layer, 0);
  if (is_new) found->second = layer_hash(weights_, layer);
  return found->second;
}

}  // namespace kvcal
