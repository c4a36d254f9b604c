#include "sweep/task_runner.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <set>

#include <poll.h>

#include "core/interrupt.h"
#include "core/parallel.h"
#include "core/text.h"
#include "sweep/results.h"

namespace kvcal {

std::vector<std::string> devices_of(const std::string& device) {
  const size_t colon = device.find(':');
  if (colon == std::string::npos) return {device};
  std::vector<std::string> devices;
  for (const std::string_view number : split(std::string_view(device).substr(colon + 1), ','))
    devices.push_back(device.substr(0, colon + 1) + std::string(number));
  return devices;
}

size_t num_jobs(const DeviceOptions& device, int jobs) {
  return jobs > 0 ? static_cast<size_t>(jobs) : devices_of(device.device).size();
}

std::vector<TaskSlot> make_slots(const DeviceOptions& device, int jobs) {
  const std::vector<std::string> devices = devices_of(device.device);
  std::vector<TaskSlot> slots(num_jobs(device, jobs), TaskSlot{.device = device});
  const int all = num_threads(device), count = static_cast<int>(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].device.device = devices[i % devices.size()];
    if (count > 1) slots[i].device.threads = std::max(1, all / count);
  }
  return slots;
}

namespace {

using Clock = std::chrono::steady_clock;
using Kind = SweepTask::Kind;

/// The most cells that are evaluated together: they share the forward pass of the reference, and a
/// kill loses as many.
constexpr size_t kMostCellsTogether = 8;

/// Whether a task's line says how far it is.
bool is_progress(const std::string& line) {
  return line.find(" %, ") != std::string::npos && line.ends_with(" left");
}

/// The times of tasks of earlier runs: a list, empty where none is known.
Json read_timings(const SweepFolder& folder) {
  const auto known = folder.read_if_sound(folder.timings());
  const Json* tasks = known ? find_field(*known, "tasks") : nullptr;
  return tasks && tasks->is_array() ? *tasks : Json::array();
}

void learn(const Json& timing, SweepEstimate& estimate) {
  if (!timing.is_object()) return;
  for (const Kind kind : kTaskKinds)
    if (optional_string(timing, "kind") == name_of(kind))
      estimate.learn(kind, optional_number(timing, "estimated").value_or(0.0),
                     optional_number(timing, "seconds").value_or(0.0));
}

struct Running {
  size_t task = 0;
  size_t number = 0;  ///< of those that were started
  TaskSlot* slot = nullptr;
  ChildProcess child;
  Clock::time_point begin = Clock::now();
  std::string error = {};  ///< its last message after "error: "
};

class Runner {
 public:
  Runner(const SweepSettings& settings, const Sweep& sweep, const SweepFolder& folder,
         SweepEstimate& estimate, TaskEvents& events)
      : settings_(settings),
        sweep_(sweep),
        folder_(folder),
        estimate_(estimate),
        events_(events),
        slots_(make_slots(settings.device, settings.jobs)) {}

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
    if (folder_.is_whole()) write_tables();
    tidy();  // removes what an earlier run left, where nothing was to do
  }

 private:
  enum class State { kWaiting, kRunning, kDone, kFailed };

  void prepare(const std::vector<bool>& wanted) {
    tasks_ = open_tasks(sweep_.plan, wanted, progress_of(sweep_, folder_), slots_.size());
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

  /// Tasks that can begin now, one for each free slot, in the order of the schedule.
  void start_ready() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (states_[i] != State::kWaiting) continue;
      const auto slot = std::ranges::find(slots_, false, &TaskSlot::is_busy);
      if (slot == slots_.end()) return;
      const auto has_ended = [&](size_t need) {
        return states_[need] == State::kDone || states_[need] == State::kFailed;
      };
      if (std::ranges::all_of(tasks_[i].needs, has_ended)) start(i, *slot);
    }
  }

  void start(size_t index, TaskSlot& slot) {
    SweepTask& task = tasks_[index];
    drop_hopeless(task);
    if (task.parts.empty()) return end(index, State::kFailed);
    const size_t number = num_ended_ + running_.size() + 1;
    events_.started(number, tasks_.size(), description(task));
    states_[index] = State::kRunning;
    slot.is_busy = true;
    const Command command = settings_.command(argument_of(task, sweep_.plan), slot.device);
    running_.push_back(
        {.task = index, .number = number, .slot = &slot, .child = ChildProcess(command)});
  }

  std::string description(const SweepTask& task) const {
    return description_of(task, sweep_.file, sweep_.plan);
  }

  /// Parts whose statistics or scales could not be made are not tried.
  void drop_hopeless(SweepTask& task) {
    if (task.kind == Kind::kObserve) return;
    const Kind needed = task.is_on_cells() ? Kind::kCalibrate : Kind::kObserve;
    std::erase_if(task.parts, [&](size_t part) {
      const auto need = task.is_on_cells() ? sweep_.plan.cells[part].calibration
                                           : sweep_.plan.calibrations[part].observation;
      const auto failed = need ? failed_.find({needed, *need}) : failed_.end();
      if (failed == failed_.end()) return false;
      if (task.is_on_cells())
        fail_cell(task.kind, part, failed->second);
      else
        failed_[{task.kind, part}] = failed->second;
      return true;
    });
  }

  fs::path error_file(Kind kind, size_t cell) const {
    return folder_.cell_error(fingerprint_of(kind, cell, sweep_.plan));
  }

  void fail_cell(Kind kind, size_t cell, const std::string& error) {
    const std::string& id = sweep_.plan.cells[cell].id;
    folder_.write(error_file(kind, cell), {{"id", id}, {"error", error}});
    events_.failed(id + ": " + error);
  }

  /// Waits a moment for lines of the children, and finishes those that have ended.
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
      events_.progressed(one.number, line);
    } else {
      events_.said(line);
    }
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
    if (folder_.is_whole() && Clock::now() >= next_tables_) write_tables();
    tidy();
    events_.ended(seconds, seconds_left());
  }

  void end(size_t index, State state) {
    states_[index] = state;
    ++num_ended_;
  }

  void fail_task(size_t index, const std::string& error) {
    const SweepTask task = tasks_[index];
    end(index, State::kFailed);
    if (!task.is_on_cells()) {
      failed_[{task.kind, task.parts[0]}] = error;
      events_.failed(error);
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
    if (!folder_.is_whole()) return;
    timings_.push_back({{"kind", name_of(task.kind)},
                        {"task", description(task)},
                        {"tokens", estimate_.tokens(task)},
                        {"estimated", estimate_.first_guess(task)},
                        {"seconds", seconds}});
    learn(timings_.back(), estimate_);
  }

  /// The tables have a row for every cell. They are written again only when the time since then is
  /// long beside the time that writing takes, which so stays a small part of a sweep of any size.
  void write_tables() {
    constexpr int kBetween = 20;
    const auto begin = Clock::now();
    write_results(sweep_, folder_);
    if (!timings_.empty()) folder_.write(folder_.timings(), {{"tasks", timings_}});
    const auto end = Clock::now();
    next_tables_ = end + kBetween * (end - begin);
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
    if (folder_.is_whole()) write_tables();
  }

  /// Removes checkpoints that no task needs any more, which may have gigabytes.
  void tidy() {
    if (!folder_.is_whole() || sweep_.file.keep_checkpoints) return;
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
    for (const PlannedCalibration& one : sweep_.plan.calibrations)
      if (one.makes_checkpoint && !needed.contains(one.fingerprint))
        folder_.remove_checkpoint(one.fingerprint);
  }

  const SweepSettings& settings_;
  const Sweep& sweep_;
  const SweepFolder& folder_;
  SweepEstimate& estimate_;
  TaskEvents& events_;
  std::vector<TaskSlot> slots_;
  std::vector<SweepTask> tasks_;
  std::vector<State> states_;
  size_t num_ended_ = 0;
  Clock::time_point next_tables_;
  Json timings_ = Json::array();
  std::list<Running> running_;
  std::map<std::pair<Kind, size_t>, std::string> failed_;  ///< errors of parts that are not cells
};

}  // namespace

std::vector<SweepTask> open_tasks(const SweepPlan& plan, const std::vector<bool>& wanted,
                                  SweepProgress done, size_t jobs) {
  size_t open = 0;
  for (size_t i = 0; i < done.cells.size(); ++i) {
    if (!wanted[i]) done.cells[i] = done.answers[i] = true;
    open += done.cells[i] ? 0 : 1;
  }
  return schedule(plan, done, std::clamp<size_t>((open + jobs - 1) / jobs, 1, kMostCellsTogether));
}

void learn_timings(const SweepFolder& folder, SweepEstimate& estimate) {
  for (const Json& one : read_timings(folder)) learn(one, estimate);
}

void run_tasks(const SweepSettings& settings, const Sweep& sweep, const std::vector<bool>& wanted,
               const SweepFolder& folder, SweepEstimate& estimate, TaskEvents& events) {
  Runner(settings, sweep, folder, estimate, events).run(wanted);
}

}  // namespace kvcal
