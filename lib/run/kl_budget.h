#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/error.h"
#include "quant/calibration.h"
#include "run/calibrate_request.h"
#include "run/calibration_result.h"
#include "run/eval_variants.h"

namespace kvcal {

/// No permitted number of layers in 16 bits keeps the budget. The message is a line.
class BudgetMissed : public Error {
 public:
  using Error::Error;
};

/// Throws Error where the request has a budget that cannot be searched for.
void check_budget(const CalibrateRequest& request, const Calibration& planned);

/// Models that a search with few layers in 16 bits runs: the reference, none to four layers, and
/// what is written with the reference.
inline constexpr int kBudgetModels = 8;

/// Chooses layers whose caches stay in 16 bits, by the KL that is measured on text of the data set
/// behind the calibration's samples. At most half of the layers stay so: with more, the cache takes
/// over three quarters of one in 16 bits.
class KlBudget {
 public:
  /// Loads the model and reads the text. num_samples: of the calibration.
  KlBudget(const CalibrateRequest& request, const Calibration& calibration,
           const ModelConfig& config, int64_t num_samples, Diagnostics& diagnostics);

  /// The fewest of the ranked layers for which the calibration's scales of the others were measured
  /// to keep the budget; nullopt layers: none.
  KlBudgetOutcome propose(const Calibration& calibration);

  /// Makes the calibration with these layers in 16 bits, and those that its plan ignores.
  using Recalibrate = std::function<Calibration(const std::vector<int64_t>& layers)>;
  /// Replaces the calibration by one that keeps the budget: leaves the proposed layers out and,
  /// where that changes other layers' scales, measures these, with more layers until the budget is
  /// kept. Throws BudgetMissed.
  KlBudgetOutcome keep(Calibration& calibration, const Recalibrate& recalibrate);

 private:
  std::vector<Likelihood> score(const Calibration& calibration,
                                const std::vector<std::vector<int64_t>>& kept);
  [[noreturn]] void fail_missed(const KlBudgetOutcome& outcome, double least,
                                size_t num_kept) const;

  double budget_;
  Diagnostics& diagnostics_;
  std::vector<int64_t> ranked_;
  size_t most_;  ///< layers that may stay in 16 bits
  EvalOptions eval_;
  std::optional<EvalVariants> variants_;
  std::vector<ScoredSequence> sequences_;
};

/// The layers that a calibration with the request's budget would leave in 16 bits, before it makes
/// the others' scales anew: a proposal, for which nothing is written. result: of the request.
KlBudgetOutcome propose_layers(const CalibrateRequest& request, const CalibrationResult& result,
                               Diagnostics& diagnostics);

}  // namespace kvcal
