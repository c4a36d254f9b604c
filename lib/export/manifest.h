#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/output.h"
#include "export/writer.h"
#include "quant/calibration.h"
#include "quant/provenance.h"
#include "recipe/recipe.h"

namespace kvcal {

/// One number, or a list where each head has its own; null for an ignored layer.
Json scales_json(const std::vector<Scale>& scales, bool ignored);

/// Number and module of a layer, whether it is a draft, and the layer whose cache it reads.
Json layer_marks(const AttentionCalibration& layer, const Calibration& calibration);

/// Facts of a run that its manifest records. See docs/formats.md, kvcal_manifest.json.
struct ManifestInput {
  std::string version;
  Provenance origin;
  std::string recipe_path;
  std::optional<StopOutcome> stop;  ///< of a run that may stop early
  Json summary = {};    ///< of the scales of K and V (calib/summary/scale_summary.h), or null
  Json kl_budget = {};  ///< layers in 16 bits that keep it, and their KL; or null
  /// Members of "dataset": how conversations were rendered, and what was skipped.
  Json reading = Json::object();
  // These and origin.device depend on the machine and may be left out.
  bool leave_out_machine = false;
  Json products = {};  ///< algorithms of a GPU's matrix library, or null
  std::map<std::string, double> seconds;
  uint64_t peak_rss_bytes = 0;
};

/// written: the result of the writers. A run without text has dataset null.
Json make_manifest(const ManifestInput& input, const Recipe& recipe, const Calibration& calibration,
                   const WrittenCheckpoint& written = {});

}  // namespace kvcal
