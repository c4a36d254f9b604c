#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "ranks/rank_session.h"
#include "run/calibration_run.h"
#include "run/devices.h"
#include "state/run_state.h"

namespace kvcal {

/// Cooperation of a run's ranks; no effect on a process that was started alone.
struct RankSettings {
  double timeout = 1800.0;       ///< seconds
  std::string weights = "auto";  ///< or shared, exchange, local
};
/// Parses settings.weights; nullopt: auto. Throws Error for an unknown value.
std::optional<WeightsMode> wanted_weights(const RankSettings& settings);

/// Runs body on every rank; if it throws on one, every rank throws.
void together(Communicator& ranks, const std::function<void()>& body);

/// GPUs of the machine that a rank runs on, and where the system describes them.
struct MachineGpus {
  std::string_view name;                         ///< of the build's GPU backend; "": none
  std::function<int()> count;                    ///< of the GPUs that this process sees
  std::function<std::string(int index)> bus_id;  ///< as gpu_bus_id
  std::filesystem::path sysfs = "/sys";
};
MachineGpus machine_gpus();

/// Devices and threads of this rank where the user gave none: several ranks on one machine take its
/// GPUs in turn, or their parts of the CPUs. Where such a rank has one GPU, and its launcher left
/// it on all CPUs, the calling thread and those that it starts later stay on the CPUs next to the
/// GPU. Collective.
DeviceOptions devices_of_rank(DeviceOptions options, Communicator& ranks,
                              const MachineGpus& gpus = machine_gpus());

/// Throws SharedError where a rank has another model, text or recipe. Collective.
void expect_same_run(Communicator& ranks, const ModelDir& model_dir, const Json& fingerprint);

/// Throws SharedError where a rank was given another output, though only the first writes one.
/// Collective.
void expect_same_output(Communicator& ranks, const std::string& output);

/// Chooses the source of layers, and reports it where there are several ranks. Collective.
RankedRun make_ranked_run(Communicator& ranks, const RankSettings& settings,
                          const ModelDir& model_dir, Diagnostics& diagnostics);

/// Share of one rank in a run.
struct RankShare {
  std::string host;
  RankWork work;
};
/// Shares of all ranks; empty for a single process. work: of this rank's forward passes; before:
/// work of the process at the start of the run. Collective.
std::vector<RankShare> gather_shares(Communicator& ranks, RankWork work, const RankWork& before);

/// The ranks, as a state sees them. Borrows.
class RankPeers : public StatePeers {
 public:
  explicit RankPeers(Communicator& ranks) : ranks_(ranks) {}
  int64_t rank() const override { return ranks_.rank(); }
  int64_t size() const override { return ranks_.size(); }
  uint64_t all(uint64_t bits) override;

 private:
  Communicator& ranks_;
};

/// The CPUs next to a PCI device, among those allowed, for a process that the user's launcher left
/// on all CPUs of the machine. Empty: nothing to change, because allowed is narrower than the
/// machine, or sysfs names no such CPUs or all of them. bus_id: "0000:3b:00.0"; sysfs: "/sys".
std::vector<int> cpus_beside(const std::filesystem::path& sysfs, const std::string& bus_id,
                             std::span<const int> allowed);

}  // namespace kvcal
