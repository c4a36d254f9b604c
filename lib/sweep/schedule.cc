#include "sweep/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"

namespace kvcal {
namespace {

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
