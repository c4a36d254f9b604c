#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "done_output.h"
#include "shell/options.h"

namespace kvcal {

enum class ExitStatus : int {
  kDone = 0,
  kBadInput = 1,
  kUsage = 2,
  kGateMissed = 3,
  kInterrupted = 130
};

/// Thrown by a command that has done its work and found a limit exceeded: what() is a line a limit.
class GateMissed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A run that has ended and said why: the process ends with the status.
class RunEnded : public std::exception {
 public:
  explicit RunEnded(int status) : status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// A command of the program, and a function of the Python module where it has one. Its constructor
/// declares the options.
class Subcommand {
 public:
  Subcommand(std::string name, std::string help, std::vector<ExampleDescription> examples)
      : name(std::move(name)), help(std::move(help)), examples(std::move(examples)) {}
  virtual ~Subcommand() = default;
  Subcommand(const Subcommand&) = delete;
  Subcommand& operator=(const Subcommand&) = delete;

  /// Options of which the command needs one and none is given, as a text; empty: none.
  virtual std::string missing() const { return ""; }
  /// The command of the program, which prints.
  virtual void run() = 0;
  /// The call from Python, which prints nothing: its value as JSON. What a gate or a check finds
  /// wrong after the work is in it, as "problem", so that the caller has the numbers, too.
  virtual Json call(Diagnostics& diagnostics);

  CommandDescription description() const;

  const std::string name, help;
  const std::vector<ExampleDescription> examples;
  PythonFunction python;
  Options options;
  /// Of a command that may find its output made; nullptr: it asks nobody.
  std::unique_ptr<DoneOutput> done;
};

using Subcommands = std::vector<std::unique_ptr<Subcommand>>;
/// Every command, in the order of --help.
Subcommands all_commands();
/// The first line of the program's help.
inline constexpr const char* kProgramHelp =
    "Calibrated FP8 KV-cache scales for 16-bit Hugging Face checkpoints";
/// Options of the program itself; prints the version, and throws RunEnded, where that is asked for.
class ProgramOptions {
 public:
  ProgramOptions();
  Options options;

 private:
  bool json_ = false;
};
ProgramDescription program_description();

using MakeSubcommand = std::unique_ptr<Subcommand> (*)();
template <class Made>
std::unique_ptr<Subcommand> make_subcommand() {
  return std::make_unique<Made>();
}
extern const MakeSubcommand kCalibrate, kTry, kQuantize, kScales, kSmooth, kConvert, kApply,
    kGenerate, kEval, kSweep, kInspect, kVerify, kEngines, kFamilies, kSynth;

}  // namespace kvcal
