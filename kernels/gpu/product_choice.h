#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "kernels/gpu/product_probe.h"

namespace kvcal::gpu {

/// The algorithm for products of a shape, and why it was chosen.
struct ChosenAlgorithm {
  bool exists = false;
  Algorithm algorithm;
  std::string reason;  ///< "fastest of 5 timed, 2 refused"
};

/// A process's choices of algorithms, which its devices of one kind share, and the time that all
/// choosing together may take.
///
/// An algorithm is admissible if a row's bytes depend neither on the number of rows nor on the
/// row's place, as a probe shows, and if its sums have the same bytes as those of the first
/// admissible one. So time decides on speed alone: another choice gives the same bytes.
class ProductChoices {
 public:
  static constexpr double kMostMilliseconds = 300.0;
  /// Floating-point operations a millisecond that are expected of a device before anything was
  /// timed, of elements of 16 bits or fewer; a tenth of them of float32.
  static constexpr double kExpectedRate = 1e11;

  /// clock: milliseconds.
  explicit ProductChoices(std::function<double()> clock) : clock_(std::move(clock)) {}
  /// That of this process, with the machine's clock.
  static ProductChoices& of_process();

  /// The choice for key: an earlier one, or that of the library for this shape, which runs on an
  /// otherwise idle device. times: candidates are timed while time is left; else the first is
  /// taken.
  ChosenAlgorithm choose(const std::string& key, AlgorithmLibrary& library, Stream& stream,
                         const MatmulProblem& shape, bool times);
  /// Milliseconds that choosing took so far.
  double spent() const { return spent_; }

 private:
  class Trial;
  std::function<double()> clock_;
  std::mutex mutex_;
  double spent_ = 0.0;
  std::map<double, double> slowest_;  ///< milliseconds of products of so many operations
  std::map<std::string, ChosenAlgorithm> chosen_;
};

}  // namespace kvcal::gpu
