#pragma once

#include <functional>
#include <string>
#include <vector>

#include "run/devices.h"
#include "sweep/child_process.h"
#include "sweep/schedule.h"
#include "sweep/sweep_estimate.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// The devices of a list, one by one: "cuda:0,1" is "cuda:0" and "cuda:1".
std::vector<std::string> devices_of(const std::string& device);

/// Number of tasks that run at a time. jobs: the requested number; 0: one for each device.
size_t num_jobs(const DeviceOptions& device, int jobs);

/// A place for one task: a device, and the threads of the processor that belong to it.
struct TaskSlot {
  DeviceOptions device;
  bool is_busy = false;
};
/// One slot for each task that may run at a time.
std::vector<TaskSlot> make_slots(const DeviceOptions& device, int jobs);

/// The program that does a task, given as argument_of writes it, on a device.
using TaskCommand = std::function<Command(const std::string& task, const DeviceOptions& device)>;

struct SweepSettings {
  std::string file, output;  ///< a path, and a folder
  std::string version;       ///< of the program, which results depend on
  FamilyChoice family = {};  ///< of models whose type is not known
  DeviceOptions device;
  int jobs = 0;                         ///< tasks at a time; 0: one for each device
  std::vector<std::string> cells = {};  ///< ids; empty: all
  TaskCommand command = {};             ///< used where tasks run
};

/// Receives the course of the tasks. Each call is short.
class TaskEvents {
 public:
  virtual ~TaskEvents() = default;
  virtual void started(size_t number, size_t num_tasks, const std::string& description) = 0;
  /// A line that a task wrote: how far it is, with the number that it was started with, or
  /// something that the user should know.
  virtual void progressed(size_t number, const std::string& line) = 0;
  virtual void said(const std::string& line) = 0;
  /// A task, or one of its cells, failed.
  virtual void failed(const std::string& why) = 0;
  virtual void ended(double seconds, double seconds_left) = 0;
};

/// Tasks that are left for the wanted cells; done: the results in the folder. jobs: tasks at a
/// time, each of which gets cells where there are enough.
std::vector<SweepTask> open_tasks(const SweepPlan& plan, const std::vector<bool>& wanted,
                                  SweepProgress done, size_t jobs);

/// Learns from the times of tasks of earlier runs, which the folder keeps.
void learn_timings(const SweepFolder& folder, SweepEstimate& estimate);

/// Runs the open tasks of the wanted cells, each in a process of its own, so that a crash of one
/// leaves the others alone. The error of a task that fails is kept in its cells' cell_error. A run
/// of all cells also updates results.json, results.csv and timings.json, and removes checkpoints
/// that no cell needs any more. Throws Interrupted.
void run_tasks(const SweepSettings& settings, const Sweep& sweep, const std::vector<bool>& wanted,
               const SweepFolder& folder, SweepEstimate& estimate, TaskEvents& events);

}  // namespace kvcal
