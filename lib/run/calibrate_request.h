#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/dataset.h"
#include "quant/stop_rule.h"
#include "run/output_files.h"
#include "run/output_formats.h"
#include "run/rank_settings.h"
#include "run/state_options.h"

namespace kvcal {

/// A calibration as the user asks for it. Texts are checked by check_request.
struct CalibrateRequest {
  std::string model, recipe, dataset;
  std::string save_statistics;  ///< file for kvcal scales; empty: none
  OutputOptions output;
  SampleOptions samples;
  std::string kv_forward = "quantized";  ///< or exact
  std::string memory_limit;              ///< empty: what the machine or control group has
  DeviceOptions device;
  StateOptions state;
  RankSettings ranks;
  int64_t batch_tokens = 0;  ///< 0: as the device likes
  std::string stable_ratio;  ///< empty: all samples are used
  int64_t stable_samples = 64;
  bool all_experts = false;
  bool reproducible = false;  ///< leaves device, seconds and peak memory out of the manifest
  /// Files that the caller writes after the run; they, and what check_reports finds, are checked
  /// before it.
  std::vector<OutputFile> reports;
  std::function<void()> check_reports = [] {};
  /// Gets the parts of several ranks on rank 0, before the output is written.
  std::function<void(const std::vector<RankShare>&)> on_shares = [](const auto&) {};
  std::string version;         ///< of the program, for manifest and state
  std::string resume_command;  ///< for the message of a run that can be resumed
};

CalibrationOptions calibration_options(const CalibrateRequest& request);
/// The rule of stable_ratio, which is given.
StopRule stop_rule(const CalibrateRequest& request);
/// Options that change a run's result, for the fingerprint of its state.
Json deciding_options(const CalibrateRequest& request);

/// Warns of options without effect.
void warn_of_idle_options(const CalibrateRequest& request, const CalibrationSubject& subject,
                          Diagnostics& diagnostics);
/// Refuses before the long work whatever can be refused. Throws Error.
void check_request(const CalibrateRequest& request, const CalibrationSubject& subject,
                   const OutputFormats& formats);

}  // namespace kvcal
