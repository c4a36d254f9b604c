#pragma once

#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "run/output_formats.h"

namespace kvcal {

/// Request for the scales of a recipe from the statistics of a calibration.
struct ScalesRequest {
  std::string statistics, recipe;
  std::string model;  ///< model of the statistics, needed for an output; empty: nothing is written
  FamilyChoice family;   ///< of a model_type that is not known
  OutputOptions output;  ///< only with model
  std::string version;   ///< of the program, for the manifest
};

struct ScalesResult {
  ModelConfig config;
  Calibration calibration = {};
  WrittenCheckpoint written = {};
  Json manifest = {};
  std::vector<WrittenFolder> folders = {};  ///< empty where nothing was written
};

/// Makes the scales without a forward pass, bit for bit those of a run with the same data, and
/// writes the output where a model is given, complete or not at all. Throws Error.
ScalesResult scales_from_statistics(ScalesRequest request, Diagnostics& diagnostics);

}  // namespace kvcal
