#pragma once

#include <string>

#include "core/diagnostics.h"
#include "family/family_choice.h"
#include "recipe/named_recipe.h"
#include "run/calibration_result.h"

namespace kvcal {

/// Request for the scales of a recipe from the statistics of a calibration.
struct ScalesRequest {
  std::string statistics;
  std::string recipe{kDefaultRecipe};  ///< a file or a name
  std::string model;  ///< model of the statistics, needed for an output; empty: nothing is written
  FamilyChoice family;    ///< of a model_type that is not known
  OutputOptions output;   ///< only with model
  double headroom = 1.0;  ///< of the scales of K and V (calib/derive.h)
  std::string version;    ///< of the program, for the manifest
};

/// Makes the scales without a forward pass, bit for bit those of a run with the same data, and
/// writes the output where a model is given, complete or not at all. Throws Error.
CalibrationResult scales_from_statistics(ScalesRequest request, Diagnostics& diagnostics);

}  // namespace kvcal
