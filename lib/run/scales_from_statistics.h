#pragma once

#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "run/output_formats.h"

namespace kvcal {

/// Scales by a recipe from statistics that a calibration has kept.
struct ScalesRequest {
  std::string statistics, recipe;
  std::string model;     ///< the statistics' model, to write an output; empty: nothing is written
  OutputOptions output;  ///< given with model alone
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
