#pragma once

#include <optional>
#include <string>

#include "forward/layerwise_options.h"
#include "run/calibrate_request.h"

namespace kvcal {

/// A request resolved against its model, before anything runs or is written.
struct PlannedRun {
  std::optional<CalibrationSubject> subject;
  std::optional<OutputFormats> formats;
  std::string inputs;  ///< as in Provenance
};

/// Fills plan, and chooses what the request leaves open. Reports every error that can be found
/// before the long work. plan stays where it is: its parts refer to each other. Throws Error.
void plan_run(CalibrateRequest& request, PlannedRun& plan, Diagnostics& diagnostics);

/// How the request's samples go through the layers. scratch: folder for hidden states on a host.
LayerwiseOptions layerwise_options(const CalibrateRequest& request, const Backend& backend,
                                   const ModelConfig& config, const fs::path& scratch);

}  // namespace kvcal
