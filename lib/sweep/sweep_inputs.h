#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/devices.h"
#include "run/subject.h"
#include "sweep/plan.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// Replaces ids of the hub by local paths, and fetches what is not there. Throws Error as
/// run/command_paths.h does.
void fetch_inputs(SweepFile& sweep, Diagnostics& diagnostics);

/// Reads the sweep's file and the configs of its models, nothing else. version: of the program,
/// which results depend on. family: of models whose type is not known.
Sweep read_planned_sweep(const std::filesystem::path& file, const std::string& version,
                         const FamilyChoice& family = {});

/// Properties of a machine that the results made on it depend on.
struct SweepMachine {
  std::string device;                           ///< "cpu", "cuda"
  std::vector<std::string> compute_dtype = {};  ///< of each model
};
SweepMachine machine_of(const DeviceOptions& device, const Backend& backend, const Sweep& sweep);
/// Writes the machine into the folder, for a machine that collects the results.
void write_machine(const SweepMachine& machine, const Sweep& sweep, const SweepFolder& folder);
/// The machine that the folder holds; nullopt where no run of these models wrote one.
std::optional<SweepMachine> read_machine(const Sweep& sweep, const SweepFolder& folder);

/// The samples that scales are made of. Throws Error as samples_for does.
std::vector<Sample> calibration_samples(const Sweep& sweep, const PlannedModel& subject,
                                        int64_t count, std::optional<uint64_t> seed,
                                        Diagnostics& diagnostics);

/// Hashes all files that results depend on, and adds the fingerprints of the plan's parts.
void add_inputs(const SweepMachine& machine, const SweepFolder& folder, Sweep& sweep);

/// The compute dtype of the options, else that of the sweep's file; "auto" where neither has one.
std::string asked_compute_dtype(const DeviceOptions& device, const Sweep& sweep);
/// The device with the compute dtype of one model of the sweep.
DeviceOptions device_of(const DeviceOptions& device, const Sweep& sweep, size_t model);

/// Hashes of models, data sets and scales. They are kept in the sweep's folder together with the
/// size and time of change of each file, so that files which have not changed are hashed once.
class FileHashes {
 public:
  explicit FileHashes(const SweepFolder& folder);

  /// The hash that compute returns, or returned for the same files. kind: "model", "files", ...; a
  /// path may have a hash of each kind.
  std::string hash(const std::string& kind, const fs::path& path,
                   const std::vector<fs::path>& files, const std::function<std::string()>& compute);
  /// The hash of the names and contents of files.
  std::string hash(const std::string& kind, const fs::path& path,
                   const std::vector<fs::path>& files);

 private:
  const SweepFolder& folder_;
  Json known_ = Json::object();
};

}  // namespace kvcal
