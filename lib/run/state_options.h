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

/// A run that was asked to stop, and says how to resume it: what() is the whole message.
class InterruptedRun : public Interrupted {
 public:
  explicit InterruptedRun(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// The folder in which a calibration keeps its progress.
struct StateOptions {
  static constexpr std::string_view kBesideOutput = ".kvcal-state";

  std::string folder;  ///< empty: the output's name and kBesideOutput; "none": nothing is kept
  std::string share = "3%";  ///< of the run's time that keeping may take
  bool resumes = false;
};
/// Throws Error for options that contradict each other.
void check_state_options(const StateOptions& options);

/// The folder of the state of a run with this output; empty: none.
fs::path state_folder(const StateOptions& options, const fs::path& output);

/// The inputs on which a run's result depends.
struct RunFacts {
  const CalibrationSubject& subject;
  const CalibrationRun& run;
  Json options;         ///< the options that change the result, by name
  std::string version;  ///< of the program
};

/// Hashes, names and numbers that must be the same for a state to fit.
Json fingerprint_of(const RunFacts& facts);

/// The ranks of the run.
struct StateRanks {
  Communicator& ranks;
  StatePeers& peers;  ///< the same ranks, as the state sees them
};

/// Opens the state, whose fingerprint is fingerprint_of(facts), and informs about its size or the
/// place where the run resumes. null: none is kept, also where the disk has no room, or other
/// ranks do not see the folder, and the user did not ask for one. Throws Error as RunState.
/// Collective.
std::unique_ptr<RunState> open_state(const StateOptions& options, const fs::path& output,
                                     bool overwrite, const RunFacts& facts, Json fingerprint,
                                     const StateRanks& ranks, Diagnostics& diagnostics);

/// Runs body; an exception that ends it early gets the command that resumes, where the state can be
/// resumed. state may be null.
void with_state(RunState* state, const std::string& resume_command,
                const std::function<void()>& body);

}  // namespace kvcal
