#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "run/calibration_run.h"
#include "ranks/communicator.h"

namespace kvcal {

/// Where a calibration keeps how far it is.
struct StateOptions {
  std::string folder;  ///< empty: beside the output; "none": nowhere
  std::string share = "3%";
  bool resumes = false;
};
void add_state_options(CLI::App& command, StateOptions& options);
/// Throws Error for options that contradict each other.
void check_state_options(const StateOptions& options);

/// Where the state of a run with this output goes; empty: nowhere.
fs::path state_folder(const StateOptions& options, const fs::path& output);

/// What a run's result depends on.
struct RunFacts {
  const CalibrationSubject& subject;
  const CalibrationRun& run;
  Json options;  ///< those that change it, by name
};

/// What must be the same for a state to fit: hashes, names and numbers.
Json fingerprint_of(const RunFacts& facts);

/// The ranks of the run.
struct StateRanks {
  Communicator& ranks;
  StatePeers& peers;  ///< they, as the state sees them
};

/// Opens the state, whose fingerprint is fingerprint_of(facts), and says on stderr how large it
/// will be or where the run goes on. null: none is kept, also where the disk has no room, or other
/// ranks do not see the folder, and nobody asked for one. Throws Error as RunState. Collective.
std::unique_ptr<RunState> open_state(const StateOptions& options, const fs::path& output,
                                     bool overwrite, const RunFacts& facts, Json fingerprint,
                                     const StateRanks& ranks, Diagnostics& diagnostics);

/// Runs body; what ends it early says how the run goes on, where it can. state may be null.
void with_state(RunState* state, const std::function<void()>& body);

}  // namespace kvcal
