#include "sweep/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace kvcal {
namespace {

using Kind = SweepTask::Kind;

std::string samples_text(int64_t count, const std::optional<uint64_t>& seed) {
  return ", " + counted(count, "sample") + (seed ? " of seed " + std::to_string(*seed) : "");
}

class Scheduler {
 public:
  Scheduler(const SweepPlan& plan, const SweepProgress& done) : plan_(plan), done_(done) {}

  /// A task on cells that run the same weights.
  void run_cells(SweepTask::Kind kind, std::vector<size_t> cells) {
    std::vector<size_t> needs;
    for (const size_t cell : cells) {
      if (!plan_.cells[cell].calibration) continue;
      const auto task = calibrate(*plan_.cells[cell].calibration);
      if (task && std::ranges::find(needs, *task) == needs.end()) needs.push_back(*task);
    }
    add({kind, std::move(cells), std::move(needs)});
  }
  std::vector<SweepTask> take() { return std::move(tasks_); }

 private:
  size_t add(SweepTask task) {
    tasks_.push_back(std::move(task));
    return tasks_.size() - 1;
  }

  /// The task that makes it; nullopt: it is there.
  std::optional<size_t> calibrate(size_t calibration) {
    if (done_.calibrations[calibration]) return std::nullopt;
    const auto [known, is_new] = calibrations_.try_emplace(calibration, 0);
    if (!is_new) return known->second;
    std::vector<size_t> needs;
    if (const auto observation = plan_.calibrations[calibration].observation)
      if (const auto task = observe(*observation)) needs.push_back(*task);
    return known->second = add({SweepTask::Kind::kCalibrate, {calibration}, std::move(needs)});
  }

  std::optional<size_t> observe(size_t observation) {
    if (done_.observations[observation]) return std::nullopt;
    const auto [known, is_new] = observations_.try_emplace(observation, 0);
    if (is_new) known->second = add({SweepTask::Kind::kObserve, {observation}, {}});
    return known->second;
  }

  const SweepPlan& plan_;
  const SweepProgress& done_;
  std::vector<SweepTask> tasks_;
  std::map<size_t, size_t> calibrations_, observations_;  ///< task of each
};

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
  return "evaluate " + counted(task.parts.size(), "cell") + ", the first " + cell;
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
  SweepTask task{.kind = *kind};
  for (const std::string_view name : split(std::string_view(argument).substr(colon + 1), ',')) {
    size_t part = 0;
    while (part < num_parts(*kind, plan) && fingerprint_of(*kind, part, plan) != name) ++part;
    if (part == num_parts(*kind, plan))
      fail("the sweep's file, models or data sets changed while it runs; start it again");
    task.parts.push_back(part);
  }
  return task;
}

SweepProgress nothing_done(const SweepFile& sweep, const SweepPlan& plan) {
  return {std::vector<bool>(plan.observations.size()), std::vector<bool>(plan.calibrations.size()),
          std::vector<bool>(plan.cells.size()), std::vector<bool>(plan.cells.size(), !sweep.gsm8k)};
}

std::vector<SweepTask> schedule(const SweepPlan& plan, const SweepProgress& done,
                                size_t group_size) {
  KVCAL_CHECK(group_size > 0);
  // Weights: a model's own, or those that a calibration makes of it.
  using Weights = std::pair<size_t, std::optional<size_t>>;
  std::map<Weights, std::vector<size_t>> open;
  Scheduler scheduler(plan, done);
  for (size_t i = 0; i < plan.cells.size(); ++i) {
    if (done.cells[i]) continue;
    const Cell& cell = plan.cells[i];
    const Weights weights{cell.model, plan.has_own_weights(cell) ? cell.calibration : std::nullopt};
    std::vector<size_t>& group = open[weights];
    group.push_back(i);
    if (group.size() == group_size)
      scheduler.run_cells(SweepTask::Kind::kEvaluate, std::exchange(group, {}));
  }
  for (auto& [weights, group] : open)
    if (!group.empty()) scheduler.run_cells(SweepTask::Kind::kEvaluate, std::move(group));
  for (size_t i = 0; i < plan.cells.size(); ++i)
    if (!done.answers[i]) scheduler.run_cells(SweepTask::Kind::kAnswer, {i});
  return scheduler.take();
}

}  // namespace kvcal
