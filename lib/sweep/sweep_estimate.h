#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/diagnostics.h"
#include "run/devices.h"
#include "sweep/schedule.h"

namespace kvcal {

/// Estimates time and memory of a sweep's tasks. Reads the data sets, so that errors in them are
/// found before the work; multiplies two matrices to measure the speed of the device.
class SweepEstimate {
 public:
  /// jobs: how many tasks run at a time.
  SweepEstimate(const DeviceOptions& device, size_t jobs, const Sweep& sweep, Backend& backend,
                Diagnostics& diagnostics);

  /// Seconds on one device.
  double seconds(const SweepTask& task) const;
  /// The same before anything was learned.
  double first_guess(const SweepTask& task) const;
  /// A task of that kind with this first guess took so many seconds. All later estimates of the
  /// kind are scaled by the tasks that are known.
  void learn(SweepTask::Kind kind, double guess, double seconds);

  /// The part of the machine that other programs leave, as in DeviceRate.
  double share() const { return rate_.share; }
  int64_t tokens(const SweepTask& task) const;
  /// The most bytes of memory that the task takes, roughly.
  double memory(const SweepTask& task) const;

 private:
  struct ModelSize {
    double active_weights = 0.0;  ///< elements of matrices that a token is multiplied by
    double all_weights = 0.0, head_weights = 0.0;
    double attended_width = 0.0;  ///< of all layers' queries
    double cache_values = 0.0;    ///< of a token, K and V of all layers
    double hidden_size = 0.0, vocab_size = 0.0, weight_bytes = 0.0;
    double layer_numbers = 0.0;  ///< of a token's residual stream, in all layers
    int64_t evaluation_tokens = 0, longest = 0;
  };
  ModelSize size_of(const SweepModel& model, const std::string& compute_dtype) const;
  const ModelSize& size_of(const SweepTask& task) const;
  void read_texts(size_t model, Diagnostics& diagnostics);

  const Sweep& sweep_;
  std::vector<ModelSize> models_;
  /// Tokens of calibration, by model, number of samples and seed.
  std::map<std::tuple<size_t, int64_t, std::optional<uint64_t>>, int64_t> calibration_tokens_;
  int64_t answer_tokens_ = 0;  ///< of all questions, roughly
  DeviceRate rate_;            ///< for one of the tasks that run at a time
  struct Known {
    double guess = 0.0, seconds = 0.0;
  };
  std::map<SweepTask::Kind, Known> known_;
};

}  // namespace kvcal
