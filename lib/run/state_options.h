#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/file.h"
#include "core/interrupt.h"
#include "ranks/communicator.h"
#include "run/calibration_run.h"
#include "state/state_peers.h"

namespace kvcal {

/// An interrupted run that can be resumed; what() is the whole message with the command.
class InterruptedRun : public Interrupted {
 public:
  explicit InterruptedRun(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Options of the folder in which a calibration keeps its state.
struct StateOptions {
  static constexpr std::string_view kBesideOutput = ".kvcal-state";

  std::string folder;        ///< empty: the output's name and kBesideOutput; "none": no state
  std::string share = "3%";  ///< of the run's time that the state may cost
  bool resumes = false;
};
/// Throws Error for contradictory options.
void check_state_options(const StateOptions& options);

/// Folder of the state of a run with this output; empty: none.
fs::path state_folder(const StateOptions& options, const fs::path& output);

/// Inputs on which a run's result depends.
struct RunFacts {
  const CalibrationSubject& subject;
  const CalibrationRun& run;
  Json options;         ///< options that change the result, by name
  std::string version;  ///< of the program
};

/// Hashes, names and numbers that must be equal for a state to fit.
Json fingerprint_of(const RunFacts& facts);

/// Ranks of the run.
struct StateRanks {
  Communicator& ranks;
  StatePeers& peers;  ///< the same ranks, as the state sees them
};

/// Opens the state with fingerprint_of(facts), and reports its size or the point where the run
/// resumes. null: no state, also where the disk has no room, or other ranks do not see the folder,
/// and the user did not request one. Throws Error as RunState does. Collective.
std::unique_ptr<RunState> open_state(const StateOptions& options, const fs::path& output,
                                     bool overwrite, const RunFacts& facts, Json fingerprint,
                                     const StateRanks& ranks, Diagnostics& diagnostics);

/// Runs body; an exception gets the command that resumes the run, where the state can be resumed.
/// state may be null.
void with_state(RunState* state, const std::string& resume_command,
                const std::function<void()>& body);

}  // namespace kvcal
