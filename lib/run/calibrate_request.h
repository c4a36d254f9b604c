#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/dataset.h"
#include "family/family_choice.h"
#include "forward/layerwise.h"
#include "quant/provenance.h"
#include "recipe/presets.h"
#include "run/command_paths.h"
#include "run/output_formats.h"
#include "run/rank_settings.h"
#include "run/state_options.h"

namespace kvcal {

/// Text that is scored with the scales of a calibration, for its KL budget and to measure them.
struct ScoreOptions {
  int64_t num_sequences = 32;
  int64_t max_seq_length = 512;
  bool every_cache = false;  ///< also measures the other caches that engines offer
};

/// What a manifest names instead of a model that was made of it for the run.
struct SourceModel {
  std::string path, sha256;
};

/// Options of a calibration. plan_run checks them.
struct CalibrateRequest {
  std::string model;
  std::string recipe{kDefaultRecipe};  ///< a file or a name
  std::string dataset = {};       ///< empty: the default one, where the recipe calibrates anything
  std::string dataset_name = {};  ///< for manifest and statistics; empty: as dataset was given
  RecordOptions records = {};
  FamilyChoice family;          ///< of a model_type that is not known
  std::string save_statistics;  ///< file for kvcal scales; empty: none
  OutputOptions output;
  SampleOptions samples;
  /// Records of the data set for a measurement: fewer samples are used where it has too few for
  /// both, which leaves half of its records, rounded up, at most.
  int64_t num_held_out = 0;
  bool is_measured = false;  ///< tokens' probabilities follow the calibration, which need lm_head
  std::string kv_forward = "quantized";  ///< or exact
  /// Whose caches keep 16 bits, beside those of layers that the recipe ignores.
  std::vector<int64_t> skip_layers = {};
  /// The mean KL that the cache may cost, in nats a token; kept by layers in 16 bits, beside those.
  std::optional<double> kl_budget = {};
  ScoreOptions score = {};
  /// Rewrites the model for an E4M3 cache first (run/smooth_checkpoint.h), and calibrates that.
  bool smooths = false;
  std::optional<SourceModel> source = {};  ///< nullopt: model itself
  double headroom = 1.0;                   ///< of the scales of K and V (calib/derive.h)
  std::string memory_limit;                ///< empty: the memory of the machine or control group
  DeviceOptions device;
  StateOptions state;
  RankSettings ranks;
  int64_t batch_tokens = 0;  ///< 0: the device's choice
  std::string stable_ratio;  ///< empty: all samples are used
  int64_t stable_samples = 64;
  bool all_experts = false;
  bool no_mtp = false;         ///< leaves out the draft layer
  bool reproducible = false;   ///< leaves device, seconds and peak memory out of the manifest
  bool times_parts = false;    ///< takes the time of a GPU's parts, for RunCost
  ReportFiles report;          ///< the caller draws them after the run; they are checked before it
  std::string version;         ///< of the program, for manifest and state
  std::string resume_command;  ///< for the message of a run that can be resumed
};

/// lengths: of the samples, in tokens; empty: they are not known yet.
CalibrationOptions calibration_options(const CalibrateRequest& request,
                                       std::span<const int64_t> lengths);
/// The request's devices, of its rank, and what is timed on them. Algorithms of products are not
/// where the run is to be reproducible, or where memory is limited, which a trial needs.
DeviceOptions timed_devices(const CalibrateRequest& request, DeviceOptions devices);
/// Rule of stable_ratio, which must be set.
StopRule stop_rule(const CalibrateRequest& request);
/// Options that change a run's result, for the fingerprint of its state.
Json deciding_options(const CalibrateRequest& request);

/// The command line that makes the same scales of model, without --output.
std::string calibrate_line(const CalibrateRequest& request, const std::string& model);

/// Whether a calibration runs text through the model.
bool runs_text(const CalibrateRequest& request, const PlannedModel& subject);
void warn_of_idle_options(const CalibrateRequest& request, const PlannedModel& subject,
                          Diagnostics& diagnostics);

/// A request resolved against its model, before anything runs or is written.
struct PlannedRun {
  std::optional<PlannedModel> subject;
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
