#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "sweep/plan.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// What a sweep is run with, beside its file.
struct SweepOptions {
  std::string file, output;
  DeviceOptions device;
  int jobs = 0;                    ///< 0: one a device
  std::vector<std::string> cells;  ///< ids; empty: all
  std::string task;                ///< of a child: what it does, and nothing else
  pid_t parent = 0;                ///< of a child: who started it, and ends it by its own end
  bool is_dry_run = false, is_list = false, is_collect = false;
  bool json = false;
};

/// Reads the file and the configs of its models, nothing else.
Sweep read_planned_sweep(const SweepOptions& options);

/// What results depend on of the machine that made them.
struct SweepMachine {
  std::string device;                      ///< "cpu", "cuda"
  std::vector<std::string> compute_dtype;  ///< of each model
};
SweepMachine machine_of(const SweepOptions& options, const Backend& backend, const Sweep& sweep);
/// Keeps it in the folder, for those who make tables on another machine.
void write_machine(const SweepMachine& machine, const Sweep& sweep, const SweepFolder& folder);
/// What was kept; nothing where no run of these models was there.
std::optional<SweepMachine> read_machine(const Sweep& sweep, const SweepFolder& folder);

/// Reads and hashes everything that results depend on. folder: where hashes are kept, so that files
/// which have not changed are hashed once.
void add_inputs(const SweepMachine& machine, const SweepFolder& folder, Sweep& sweep);

/// The option, else what the file says; "auto": neither says.
std::string asked_compute_dtype(const SweepOptions& options, const Sweep& sweep);
/// The device options of one model of the sweep, with the compute dtype resolved.
DeviceOptions device_of(const SweepOptions& options, const Sweep& sweep, size_t model);

}  // namespace kvcal
