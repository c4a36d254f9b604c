#pragma once

#include <optional>

#include "core/file.h"
#include "ranks/rank_session.h"
#include "run/calibrate_request.h"
#include "run/smooth_checkpoint.h"

namespace kvcal {

/// The request of kvcal smooth for a calibration, without an output: its first samples, as many and
/// as long as kvcal smooth reads by itself at most.
SmoothRequest smooth_request(const CalibrateRequest& request);

/// The model of a calibration, rewritten for its E4M3 cache beside the output, while this lives.
/// Interrupted runs rewrite it again: the same model and text make the same bytes, so that their
/// state fits.
class SmoothedModel {
 public:
  /// Runs the first samples of the request through its model. Throws Error as check_request and
  /// smooth_checkpoint do, and with several ranks; Interrupted where the user asks to stop.
  SmoothedModel(const CalibrateRequest& request, const RankSession& session,
                Diagnostics& diagnostics);

  /// The request for the rewritten model, in place of the default recipe with scales of K chosen by
  /// attention; for its own model where no rewriting gains anything.
  const CalibrateRequest& request() const { return request_; }

 private:
  CalibrateRequest request_;
  std::optional<AtomicDirectory> scratch_;  ///< never committed
};

}  // namespace kvcal
