#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/file.h"
#include "core/interrupt.h"
#include "ranks/communicator.h"
#include "run/calibration_run.h"
#include "run/output_formats.h"
#include "state/run_state.h"

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
  static constexpr std::string_view kBesideOutput = ".kvcal-state", kNone = "none";

  std::string folder;        ///< empty: the output's name and kBesideOutput; "none": no state
  std::string share = "3%";  ///< of the run's time that the state may cost
  bool resumes = false;
};
/// Throws Error for contradictory options.
void check_state_options(const StateOptions& options);

/// Folder of the state of a run with this output; empty: none.
fs::path state_folder(const StateOptions& options, const fs::path& output);

/// Hashes, names and numbers that must be equal for a state to fit. options: those that change the
/// result, by name; version: of the program.
Json fingerprint_of(const PlannedModel& subject, const CalibrationRun& run, const Json& options,
                    const std::string& version);

/// Opens the state of a run with this fingerprint, and reports its size or the point where the run
/// resumes. null: no state, also where the disk has no room, or other ranks do not see the folder,
/// and the user did not request one. peers: the ranks, as the state sees them. Throws Error as
/// RunState does. Collective.
std::unique_ptr<RunState> open_state(const StateOptions& options, const OutputOptions& output,
                                     const PlannedModel& subject, const CalibrationRun& run,
                                     Json fingerprint, Communicator& ranks, StatePeers& peers,
                                     Diagnostics& diagnostics);

/// Runs body; an exception gets the command that resumes the run, where the state can be resumed.
/// state may be null.
void with_state(RunState* state, const std::string& resume_command,
                const std::function<void()>& body);

}  // namespace kvcal
