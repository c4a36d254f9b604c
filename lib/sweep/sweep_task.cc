#include "sweep/sweep_task.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {
namespace {

using Kind = SweepTask::Kind;

std::string samples_text(int64_t count, const std::optional<uint64_t>& seed) {
  return ", " + std::to_string(count) + " samples" +
         (seed ? " of seed " + std::to_string(*seed) : "");
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"observe", "calibrate", "evaluate", "answer"};
  return kNames[static_cast<size_t>(kind)];
}

size_t num_parts(Kind kind, const SweepPlan& plan) {
  if (kind == Kind::kObserve) return plan.observations.size();
  return kind == Kind::kCalibrate ? plan.calibrations.size() : plan.cells.size();
}

const std::string& fingerprint_of(Kind kind, size_t part, const SweepPlan& plan) {
  if (kind == Kind::kObserve) return plan.observations[part].fingerprint;
  if (kind == Kind::kCalibrate) return plan.calibrations[part].fingerprint;
  const Cell& cell = plan.cells[part];
  return kind == Kind::kAnswer ? cell.answer_fingerprint : cell.fingerprint;
}

size_t model_of(const SweepTask& task, const SweepPlan& plan) {
  const size_t part = task.parts.at(0);
  if (task.kind == Kind::kObserve) return plan.observations[part].model;
  return task.kind == Kind::kCalibrate ? plan.calibrations[part].model : plan.cells[part].model;
}

std::string description_of(const SweepTask& task, const SweepFile& sweep, const SweepPlan& plan) {
  const size_t part = task.parts.at(0);
  const std::string& model = sweep.models[model_of(task, plan)].name;
  if (task.kind == Kind::kObserve) {
    const Observation& one = plan.observations[part];
    return "statistics of " + model + samples_text(one.num_samples, one.seed);
  }
  if (task.kind == Kind::kCalibrate) {
    const PlannedCalibration& one = plan.calibrations[part];
    std::string text = "scales of " + model + " by " + sweep.recipes[one.recipe].name;
    if (one.kv_forward)
      text += ", " + std::string(name_of(*one.kv_cache_dtype)) + ", " + *one.kv_forward;
    return text + (one.num_samples ? samples_text(*one.num_samples, one.seed) : "");
  }
  const std::string& cell = plan.cells[part].id;
  if (task.kind == Kind::kAnswer) return "questions for " + cell;
  if (task.parts.size() == 1) return "evaluate " + cell;
  return "evaluate " + std::to_string(task.parts.size()) + " cells, the first " + cell;
}

std::string argument_of(const SweepTask& task, const SweepPlan& plan) {
  std::string text = std::string(name_of(task.kind)) + ":";
  for (size_t i = 0; i < task.parts.size(); ++i)
    text += (i ? "," : "") + fingerprint_of(task.kind, task.parts[i], plan);
  return text;
}

SweepTask parse_task(const std::string& argument, const SweepPlan& plan) {
  const size_t colon = argument.find(':');
  const auto kind = std::ranges::find(kTaskKinds, argument.substr(0, colon),
                                      [](Kind one) { return name_of(one); });
  if (kind == std::end(kTaskKinds) || colon == std::string::npos)
    fail("--task: found '", argument,
         "', expected observe:, calibrate:, evaluate: or answer: and parts");
  SweepTask task{.kind = *kind, .parts = {}, .needs = {}};
  for (size_t at = colon + 1; at <= argument.size();) {
    const size_t end = std::min(argument.find(',', at), argument.size());
    const std::string name = argument.substr(at, end - at);
    size_t part = 0;
    while (part < num_parts(*kind, plan) && fingerprint_of(*kind, part, plan) != name) ++part;
    if (part == num_parts(*kind, plan))
      fail("the sweep's file, models or data sets changed while it runs; start it again");
    task.parts.push_back(part);
    at = end + 1;
  }
  return task;
}

}  // namespace kvcal
