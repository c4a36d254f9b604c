#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "run/devices.h"
#include "sweep/plan.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// Replaces ids of the hub by local paths, and fetches what is not there. Throws Error as
/// run/named_inputs.h does.
void fetch_inputs(SweepFile& sweep, Diagnostics& diagnostics);

/// Reads the sweep's file and the configs of its models, nothing else. version: of the program,
/// which results depend on. family: of models whose type is not known.
Sweep read_planned_sweep(const std::filesystem::path& file, const std::string& version,
                         const FamilyChoice& family = {});

/// Properties of a machine that the results made on it depend on.
struct SweepMachine {
  std::string device;                      ///< "cpu", "cuda"
  std::vector<std::string> compute_dtype;  ///< of each model
};
SweepMachine machine_of(const DeviceOptions& device, const Backend& backend, const Sweep& sweep);
/// Writes the machine into the folder, for a machine that collects the results.
void write_machine(const SweepMachine& machine, const Sweep& sweep, const SweepFolder& folder);
/// The machine that the folder holds; nullopt where no run of these models wrote one.
std::optional<SweepMachine> read_machine(const Sweep& sweep, const SweepFolder& folder);

/// Hashes all files that results depend on, and adds the fingerprints of the plan's parts.
void add_inputs(const SweepMachine& machine, const SweepFolder& folder, Sweep& sweep);

/// The compute dtype of the options, else that of the sweep's file; "auto" where neither has one.
std::string asked_compute_dtype(const DeviceOptions& device, const Sweep& sweep);
/// The device with the compute dtype of one model of the sweep.
DeviceOptions device_of(const DeviceOptions& device, const Sweep& sweep, size_t model);

}  // namespace kvcal
