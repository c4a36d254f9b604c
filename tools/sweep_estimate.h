#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/diagnostics.h"
#include "sweep/schedule.h"
#include "sweep_inputs.h"

namespace kvcal {

/// What the tasks of a sweep will take. Reads the data sets, so that what is wrong with them is
/// told before the work; multiplies two matrices to see how fast the device is.
class SweepEstimate {
 public:
  SweepEstimate(const SweepOptions& options, const Sweep& sweep, Backend& backend,
                Diagnostics& diagnostics);

  /// Seconds on one device.
  double seconds(const SweepTask& task) const;
  /// The same before anything was learned.
  double first_guess(const SweepTask& task) const;
  /// A task of that kind, guessed at so long, took so many seconds: the next ones are estimated by
  /// all that is known.
  void learn(SweepTask::Kind kind, double guess, double seconds);

  int64_t tokens(const SweepTask& task) const;
  /// Bytes of memory that the task takes at most, roughly.
  double memory(const SweepTask& task) const;

 private:
  struct ModelSize {
    double active_weights = 0.0;  ///< elements of matrices that a token is multiplied by
    double all_weights = 0.0, head_weights = 0.0;
    double attended_width = 0.0;  ///< of all layers' queries
    double cache_values = 0.0;    ///< of a token, K and V of all layers
    double hidden_size = 0.0, vocab_size = 0.0, weight_bytes = 0.0;
    int64_t evaluation_tokens = 0, longest = 0;
  };
  static ModelSize size_of(const SweepModel& model, const std::string& compute_dtype);
  void read_texts(size_t model, Diagnostics& diagnostics);
  double forward_work(const ModelSize& size, double tokens, double length) const;

  const Sweep& sweep_;
  std::vector<ModelSize> models_;
  /// Tokens of calibration, by model, number of samples and seed.
  std::map<std::tuple<size_t, int64_t, std::optional<uint64_t>>, int64_t> calibration_tokens_;
  int64_t answer_tokens_ = 0;   ///< of all questions, roughly
  double rate_ = 1.0;           ///< floating-point operations per second of a forward pass
  double logit_seconds_ = 0.0;  ///< of scoring
  struct Known {
    double guess = 0.0, seconds = 0.0;
  };
  std::map<SweepTask::Kind, Known> known_;
};

}  // namespace kvcal
