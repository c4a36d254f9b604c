#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "ranks/rank_work.h"
#include "run/calibration_run.h"
#include "run/devices.h"
#include "state/state_peers.h"

namespace kvcal {

/// How the ranks of a run work together; without effect on a process that was started alone.
struct RankSettings {
  double timeout = 1800.0;       ///< seconds
  std::string weights = "auto";  ///< or shared, exchange, local
};
/// Throws Error for settings.weights that is unknown; nullopt: auto.
std::optional<WeightsMode> wanted_weights(const RankSettings& settings);

/// Runs body on every rank; every rank throws what body throws on one.
void together(Communicator& ranks, const std::function<void()>& body);

/// The devices and threads of this rank, where the user left them open: each of several ranks on
/// one machine takes a GPU of its own, or its part of the CPUs. Collective.
DeviceOptions devices_of_rank(DeviceOptions options, Communicator& ranks);

/// Throws SharedError where a rank would calibrate another model, text or recipe. Collective.
void expect_same_run(Communicator& ranks, const ModelDir& model_dir, const Json& fingerprint);

/// Chooses the source of layers and informs about it where there are several ranks. Collective.
RankedRun make_ranked_run(Communicator& ranks, const RankSettings& settings,
                          const ModelDir& model_dir, Diagnostics& diagnostics);

/// The part of one rank in a run.
struct RankShare {
  std::string host;
  RankWork work;
};
/// The parts of all ranks; empty for a process alone. work: of this rank's forward passes; before:
/// the work of the process when the run began. Collective.
std::vector<RankShare> gather_shares(Communicator& ranks, RankWork work, const RankWork& before);

/// The ranks as a state sees them. Borrows.
class RankPeers : public StatePeers {
 public:
  explicit RankPeers(Communicator& ranks) : ranks_(ranks) {}
  int64_t rank() const override { return ranks_.rank(); }
  int64_t size() const override { return ranks_.size(); }
  uint64_t all(uint64_t bits) override;

 private:
  Communicator& ranks_;
};

}  // namespace kvcal
