#include "run/smoothed_model.h"

#include <algorithm>

#include "core/replaceable.h"
#include "run/planned_run.h"
#include "run/smooth_checkpoint.h"

namespace kvcal {
namespace {

constexpr const char* kSmoothedBesideOutput = ".kvcal-smoothed";

std::string lines_of(const SmoothResult& result) {
  std::string text = "rewritten for an fp8_e4m3 cache:";
  for (const auto& [label, line] : smoothing_lines(result)) text += "\n  " + label + ": " + line;
  return text;
}

}  // namespace

SmoothRequest smooth_request(const CalibrateRequest& request) {
  SmoothRequest smooth;
  smooth.model = request.model;
  smooth.cache = SmoothedFor::kFp8E4m3;
  smooth.dataset = request.dataset;
  smooth.records = request.records;
  SampleOptions samples = request.samples;
  samples.num_calibration_samples =
      std::min(samples.num_calibration_samples, smooth.samples.num_calibration_samples);
  samples.max_seq_length = std::min(samples.max_seq_length, smooth.samples.max_seq_length);
  smooth.samples = samples;
  smooth.family = request.family;
  smooth.device = request.device;
  smooth.version = request.version;
  return smooth;
}

SmoothedModel::SmoothedModel(const CalibrateRequest& request, const RankSession& session,
                             Diagnostics& diagnostics)
    : request_(request) {
  if (!session.is_alone())
    fail("--smooth runs in one process: kvcal smooth ", request.model,
         " --for fp8_e4m3 first, and calibrate its output on several ranks");
  CalibrateRequest settled = request;
  PlannedRun plan;
  SilentDiagnostics silent;  // the calibration says it all again
  plan_run(settled, plan, silent);
  if (!runs_text(settled, *plan.subject))
    fail("--smooth needs text to see K, and ", request.recipe, " calibrates nothing");
  check_replaceable(request.output.output, OutputKind::kFolder, request.output.overwrite);
  scratch_.emplace(request.output.output + kSmoothedBesideOutput, true);
  SmoothRequest smooth = smooth_request(settled);
  smooth.output = (scratch_->path() / "model").string();
  diagnostics.inform("looking for constant parts of K");
  const SmoothResult result = smooth_checkpoint(smooth, diagnostics);
  diagnostics.inform(lines_of(result));
  if (!result.is_changed()) return;
  // The constant parts decide the largest K, and a scale from it serves them alone.
  if (request_.recipe == kDefaultRecipe) request_.recipe = kAttentionRecipe;
  const Json& model = result.manifest.at("model");
  request_.source = {.path = model.at("path").get<std::string>(),
                     .sha256 = model.at("sha256").get<std::string>()};
  request_.model = smooth.output;
}

}  // namespace kvcal
