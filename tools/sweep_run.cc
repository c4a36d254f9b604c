#include "sweep_run.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <map>
#include <set>

#include "core/interrupt.h"
#include "sweep/child_process.h"
#include "sweep/kept_results.h"
#include "sweep_tables.h"
#include "sweep_tasks.h"

namespace kvcal {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = SweepTask::Kind;

bool is_progress(const std::string& line) {
  return line.find(" %, ") != std::string::npos && line.ends_with("/s");
}

/// What tasks of earlier runs took: a list, empty where none is known.
Json read_timings(const SweepFolder& folder) {
  const auto known = folder.read_if_sound(folder.timings());
  const Json* tasks = known ? find_field(*known, "tasks") : nullptr;
  return tasks && tasks->is_array() ? *tasks : Json::array();
}

void learn(const Json& timing, SweepEstimate& estimate) {
  if (!timing.is_object()) return;
  for (const Kind kind : {Kind::kObserve, Kind::kCalibrate, Kind::kEvaluate, Kind::kAnswer})
    if (optional_string(timing, "kind") == name_of(kind))
      estimate.learn(kind, optional_number(timing, "estimated").value_or(0.0),
                     optional_number(timing, "seconds").value_or(0.0));
}

/// A task while it runs.
struct Running {
  size_t task = 0;
  SweepSlot* slot = nullptr;
  ChildProcess child;
  Clock::time_point begin = Clock::now();
  std::string error = {};  ///< what it said last after "error: "
};

class Runner {
 public:
  Runner(const SweepOptions& options, const Sweep& sweep, const SweepFolder& folder,
         SweepFolder::Use use, SweepEstimate& estimate)
      : options_(options),
        sweep_(sweep),
        folder_(folder),
        is_whole_(use == SweepFolder::Use::kWhole),
        estimate_(estimate),
        slots_(make_slots(options)) {}

  void run(const std::vector<bool>& wanted) {
    prepare(wanted);
    try {
      while (num_ended_ < tasks_.size()) {
        start_ready();
        watch();
        throw_if_interrupted();
      }
    } catch (...) {
      stop_all();
      throw;
    }
    tidy();  // what an earlier run left, where nothing was to do
  }

 private:
  enum class State { kWaiting, kRunning, kDone, kFailed };

  void prepare(const std::vector<bool>& wanted) {
    tasks_ = open_tasks(options_, sweep_, wanted, progress_of(sweep_, folder_));
    states_.assign(tasks_.size(), State::kWaiting);
    for (const SweepTask& task : tasks_)
      if (task.is_on_cells())
        for (const size_t cell : task.parts) fs::remove(error_file(task.kind, cell));
    timings_ = read_timings(folder_);
  }

  double seconds_left() const {
    double seconds = 0.0;
    for (size_t i = 0; i < tasks_.size(); ++i)
      if (states_[i] == State::kWaiting || states_[i] == State::kRunning)
        seconds += estimate_.seconds(tasks_[i]);
    return seconds / static_cast<double>(slots_.size());
  }

  /// What can begin now, one a free slot, in the order of the schedule.
  void start_ready() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (states_[i] != State::kWaiting) continue;
      const auto slot = std::ranges::find(slots_, false, &SweepSlot::is_busy);
      if (slot == slots_.end()) return;
      const auto has_ended = [&](size_t need) {
        return states_[need] == State::kDone || states_[need] == State::kFailed;
      };
      if (std::ranges::all_of(tasks_[i].needs, has_ended)) start(i, *slot);
    }
  }

  void start(size_t index, SweepSlot& slot) {
    SweepTask& task = tasks_[index];
    drop_hopeless(task);
    if (task.parts.empty()) return end(index, State::kFailed);
    say("[%zu/%zu] %s\n", num_ended_ + running_.size() + 1, tasks_.size(),
        description(task).c_str());
    states_[index] = State::kRunning;
    slot.is_busy = true;
    running_.push_back({.task = index,
                        .slot = &slot,
                        .child = ChildProcess({"/proc/self/exe", words(task, slot)})});
  }

  std::vector<std::string> words(const SweepTask& task, const SweepSlot& slot) const {
    return {program_,
            "sweep",
            options_.file,
            "--output",
            options_.output,
            "--task",
            argument_of(task, sweep_.plan),
            "--parent",
            std::to_string(::getpid()),
            "--device",
            slot.device.device,
            "--threads",
            std::to_string(slot.device.threads),
            "--compute-dtype",
            options_.device.compute_dtype};
  }

  std::string description(const SweepTask& task) const {
    return description_of(task, sweep_.file, sweep_.plan);
  }

  /// Cells whose scales could not be made are not tried.
  void drop_hopeless(SweepTask& task) {
    std::erase_if(task.parts, [&](size_t part) {
      const std::string* why = nullptr;
      if (task.is_on_cells()) {
        const auto calibration = sweep_.plan.cells[part].calibration;
        if (calibration) why = find_error(failed_calibrations_, *calibration);
        if (why) fail_cell(task.kind, part, *why);
      } else if (task.kind == Kind::kCalibrate) {
        const auto observation = sweep_.plan.calibrations[part].observation;
        if (observation) why = find_error(failed_observations_, *observation);
        if (why) failed_calibrations_[part] = *why;
      }
      return why != nullptr;
    });
  }

  static const std::string* find_error(const std::map<size_t, std::string>& errors, size_t part) {
    const auto found = errors.find(part);
    return found == errors.end() ? nullptr : &found->second;
  }

  fs::path error_file(Kind kind, size_t cell) const {
    const Cell& failed = sweep_.plan.cells[cell];
    return folder_.cell_error(kind == Kind::kAnswer ? failed.answer_fingerprint
                                                    : failed.fingerprint);
  }

  void fail_cell(Kind kind, size_t cell, const std::string& error) {
    const std::string& id = sweep_.plan.cells[cell].id;
    folder_.write(error_file(kind, cell), {{"id", id}, {"error", error}});
    say("failed: %s: %s\n", id.c_str(), error.c_str());
  }

  /// Waits a little for what children say, and ends those that have ended.
  void watch() {
    if (running_.empty()) return;
    std::vector<pollfd> wanted;
    for (const Running& one : running_) wanted.push_back({one.child.descriptor(), POLLIN, 0});
    ::poll(wanted.data(), wanted.size(), 200);
    for (auto one = running_.begin(); one != running_.end();) {
      for (const std::string& line : one->child.read_lines()) hear(*one, line);
      if (one->child.descriptor() >= 0) {
        ++one;
        continue;
      }
      throw_if_interrupted();  // a child that was interrupted did not fail
      finish(*one);
      one = running_.erase(one);
    }
  }

  void hear(Running& one, const std::string& line) {
    if (line.starts_with("error: ")) {
      one.error = line.substr(7);
    } else if (!one.error.empty()) {
      one.error += "\n" + line;  // messages may have several lines
    } else if (is_progress(line)) {
      show(line);
    } else {
      say("%s\n", line.c_str());
    }
  }

  /// A line on stderr that stays, in the place of one that does not.
  template <class... Parts>
  void say(const char* format, Parts... parts) {
    if (is_shown_) std::fputs("\r\x1b[K", stderr);
    is_shown_ = false;
    std::fprintf(stderr, format, parts...);
  }

  /// How far a task is, on a terminal.
  void show(const std::string& line) {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r        %s\x1b[K", line.c_str());
    is_shown_ = true;
  }

  void finish(Running& one) {
    one.slot->is_busy = false;
    const std::string why = one.child.wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - one.begin).count();
    const SweepTask& task = tasks_[one.task];
    if (why.empty()) {
      keep_timing(task, seconds);
      end(one.task, State::kDone);
    } else {
      fail_task(one.task, one.error.empty() ? why : one.error);
    }
    if (is_whole_) write_results(sweep_, folder_);
    tidy();
    say("        %s, about %s left\n", time_text(seconds).c_str(),
        time_text(seconds_left()).c_str());
  }

  void end(size_t index, State state) {
    states_[index] = state;
    ++num_ended_;
  }

  void fail_task(size_t index, const std::string& error) {
    const SweepTask task = tasks_[index];
    end(index, State::kFailed);
    if (task.kind == Kind::kObserve) failed_observations_[task.parts[0]] = error;
    if (task.kind == Kind::kCalibrate) failed_calibrations_[task.parts[0]] = error;
    if (!task.is_on_cells()) {
      say("failed: %s\n", error.c_str());
      return;
    }
    if (task.parts.size() == 1) return fail_cell(task.kind, task.parts[0], error);
    // One of them may be what the others suffer from.
    for (const size_t cell : task.parts) {
      tasks_.push_back({task.kind, {cell}, {}});
      states_.push_back(State::kWaiting);
    }
  }

  void keep_timing(const SweepTask& task, double seconds) {
    if (!is_whole_) return;
    timings_.push_back({{"kind", name_of(task.kind)},
                        {"task", description(task)},
                        {"tokens", estimate_.tokens(task)},
                        {"estimated", estimate_.first_guess(task)},
                        {"seconds", seconds}});
    learn(timings_.back(), estimate_);
    folder_.write(folder_.timings(), {{"tasks", timings_}});
  }

  void stop_all() {
    for (Running& one : running_) one.child.interrupt();
    const auto limit = Clock::now() + std::chrono::seconds(10);
    for (Running& one : running_)
      while (one.child.descriptor() >= 0 && Clock::now() < limit) {
        pollfd wanted{one.child.descriptor(), POLLIN, 0};
        ::poll(&wanted, 1, 100);
        one.child.read_lines();
      }
    running_.clear();  // ends what did not obey
    if (is_whole_) write_results(sweep_, folder_);
  }

  /// Checkpoints that no task needs any more: gigabytes, maybe.
  void tidy() {
    // Calibrations of the same result have the same fingerprint, and one checkpoint.
    std::set<std::string> needed;
    const auto need = [&](size_t calibration) {
      needed.insert(sweep_.plan.calibrations[calibration].fingerprint);
    };
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (states_[i] != State::kWaiting && states_[i] != State::kRunning) continue;
      if (tasks_[i].kind == Kind::kCalibrate) need(tasks_[i].parts[0]);
      if (!tasks_[i].is_on_cells()) continue;
      for (const size_t cell : tasks_[i].parts)
        if (const auto calibration = sweep_.plan.cells[cell].calibration) need(*calibration);
    }
    remove_checkpoints(needed);
  }

  void remove_checkpoints(const std::set<std::string>& but) {
    if (!is_whole_ || sweep_.file.keep_checkpoints) return;
    for (const PlannedCalibration& one : sweep_.plan.calibrations)
      if (one.makes_checkpoint && !but.contains(one.fingerprint))
        folder_.remove_checkpoint(one.fingerprint);
  }

  const SweepOptions& options_;
  const std::string program_ = fs::read_symlink("/proc/self/exe").string();
  const Sweep& sweep_;
  const SweepFolder& folder_;
  bool is_whole_;
  SweepEstimate& estimate_;
  std::vector<SweepSlot> slots_;
  std::vector<SweepTask> tasks_;
  std::vector<State> states_;
  size_t num_ended_ = 0;
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1, is_shown_ = false;
  Json timings_ = Json::array();
  std::list<Running> running_;
  std::map<size_t, std::string> failed_observations_, failed_calibrations_;
};

}  // namespace

std::vector<SweepTask> open_tasks(const SweepOptions& options, const Sweep& sweep,
                                  const std::vector<bool>& wanted, SweepProgress done) {
  size_t open = 0;
  for (size_t i = 0; i < done.cells.size(); ++i) {
    if (!wanted[i]) done.cells[i] = done.answers[i] = true;
    open += done.cells[i] ? 0 : 1;
  }
  // Every device gets cells where there are enough.
  const size_t jobs = num_jobs(options);
  return schedule(sweep.plan, done,
                  std::clamp<size_t>((open + jobs - 1) / jobs, 1, kMostCellsTogether));
}

void learn_timings(const SweepFolder& folder, SweepEstimate& estimate) {
  for (const Json& one : read_timings(folder)) learn(one, estimate);
}

void run_sweep(const SweepOptions& options, const Sweep& sweep, const std::vector<bool>& wanted,
               const SweepFolder& folder, SweepFolder::Use use, SweepEstimate& estimate) {
  Runner(options, sweep, folder, use, estimate).run(wanted);
}

}  // namespace kvcal
