#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "calibrate_ranks.h"
#include "calibrate_state.h"
#include "commands.h"
#include "datasets/dataset.h"
#include "output_options.h"
#include "plots.h"
#include "run/calibration_run.h"

namespace kvcal {

struct CalibrateOptions {
  std::string model, recipe, dataset, save_statistics;
  OutputOptions output;
  SampleOptions samples;
  std::string kv_forward = "quantized";
  std::string memory_limit;
  DeviceOptions device;
  ReportOptions report;
  StateOptions state;
  RankSettings ranks;
  int64_t batch_tokens = 0;
  std::string stable_ratio;  ///< empty: all samples are used
  int64_t stable_samples = 64;
  bool all_experts = false;
  bool reproducible = false;
  bool json = false;
};

void add_calibrate_options(CLI::App& command, CalibrateOptions& options);

CalibrationOptions calibration_options(const CalibrateOptions& options);
/// Of --stop-when-stable, which is given.
StopRule stop_rule(const CalibrateOptions& options);
/// Options that change what a run gives, for the fingerprint of its state.
Json deciding_options(const CalibrateOptions& options);

/// Warns of what was asked for and has no effect.
void warn_of_idle_options(const CalibrateOptions& options, const CalibrationSubject& subject,
                          Diagnostics& diagnostics);
/// Whatever can be refused is refused before the long work. Throws Error.
void check_all(const CalibrateOptions& options, const CalibrationSubject& subject,
               const OutputFormats& formats);

}  // namespace kvcal
