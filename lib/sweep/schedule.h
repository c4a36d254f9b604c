#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sweep/plan.h"

namespace kvcal {

/// A piece of work that runs on its own and leaves its result in files.
struct SweepTask {
  enum class Kind { kObserve, kCalibrate, kEvaluate, kAnswer };
  Kind kind = Kind::kEvaluate;
  /// Indices into the plan's observations, calibrations or cells. One index; an evaluation may have
  /// several cells that run the same weights and share the forward pass of the 16-bit reference.
  std::vector<size_t> parts = {};
  std::vector<size_t> needs = {};  ///< tasks, into the schedule, that come before

  /// Whether the parts are cells.
  bool is_on_cells() const { return kind == Kind::kEvaluate || kind == Kind::kAnswer; }
};
inline constexpr SweepTask::Kind kTaskKinds[] = {
    SweepTask::Kind::kObserve, SweepTask::Kind::kCalibrate, SweepTask::Kind::kEvaluate,
    SweepTask::Kind::kAnswer};

/// "observe", "calibrate", "evaluate", "answer"
std::string_view name_of(SweepTask::Kind kind);

/// How many parts the plan has for tasks of that kind, and the fingerprint of one of them.
size_t num_parts(SweepTask::Kind kind, const SweepPlan& plan);
const std::string& fingerprint_of(SweepTask::Kind kind, size_t part, const SweepPlan& plan);

/// The model that the task runs, into the SweepFile's list.
size_t model_of(const SweepTask& task, const SweepPlan& plan);

/// The task for people: "scales of SmolLM2 by kv_mse, fp8_e4m3, exact, 512 samples".
std::string description_of(const SweepTask& task, const SweepFile& sweep, const SweepPlan& plan);

/// The task as an argument of a program, "evaluate:" and the fingerprints of its parts, and back.
/// Parsing throws Error where the plan has no such part any more.
std::string argument_of(const SweepTask& task, const SweepPlan& plan);
SweepTask parse_task(const std::string& argument, const SweepPlan& plan);

/// Which parts of the plan are done already.
struct SweepProgress {
  std::vector<bool> observations, calibrations;
  std::vector<bool> cells;    ///< scored
  std::vector<bool> answers;  ///< one a cell; true where the sweep asks no questions
};
SweepProgress nothing_done(const SweepFile& sweep, const SweepPlan& plan);

/// The tasks that are left for the cells that are not done. Every task comes after those it needs,
/// and a group of cells as early as possible, so that a kill loses little; answers, which take
/// longest, come last. group_size: the most cells of one evaluation, 1 or more.
std::vector<SweepTask> schedule(const SweepPlan& plan, const SweepProgress& done,
                                size_t group_size);

}  // namespace kvcal
