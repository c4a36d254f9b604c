#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "run/calibration_run.h"
#include "commands.h"
#include "ranks/rank_session.h"
#include "ranks/rank_work.h"
#include "ranks/weights_mode.h"
#include "state/state_peers.h"

namespace kvcal {

/// How the ranks of a run work together; without effect on one that was started alone.
struct RankSettings {
  double timeout = 1800.0;  ///< seconds
  std::string weights = "auto";
};
void add_rank_options(CLI::App& command, RankSettings& settings);
/// Throws Error for --weights that it does not know.
std::optional<WeightsMode> wanted_weights(const RankSettings& settings);

/// Runs body on every rank that a launcher started, or alone. Errors of a run alone leave it; of
/// several ranks they are said once, and RunEnded leaves it, on every rank.
void with_ranks(const RankSettings& settings, const std::function<void(RankSession&)>& body);

/// Runs body on every rank; what it throws on one, every rank throws.
void together(Communicator& ranks, const std::function<void()>& body);

/// The devices and threads of this rank, where the user left them open: of several ranks on one
/// machine each takes a GPU of its own, or its part of the CPUs. Collective.
DeviceOptions devices_of_rank(DeviceOptions options, Communicator& ranks);

/// Throws SharedError where a rank would calibrate another model, text or recipe. Collective.
void expect_same_run(Communicator& ranks, const ModelDir& model_dir, const Json& fingerprint);

/// Says on rank 0 of several what each rank had to do, read and took: work, of which before is what
/// the process had taken when it began. Collective.
void tell_work(Communicator& ranks, RankWork work, const RankWork& before);

/// Says where layers come from, on rank 0 of several. Collective.
RankedRun make_ranked_run(Communicator& ranks, const RankSettings& settings,
                          const ModelDir& model_dir);

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
