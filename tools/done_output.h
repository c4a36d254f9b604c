#pragma once

#include <filesystem>
#include <string>

#include "shell/options.h"

namespace kvcal {

/// --if-done: what a command does where its output is there already. A run with it records in the
/// output's manifest what it was made of ("request_sha256") and the files that it wrote, so that
/// the same command can tell later that it has nothing to do.
class DoneOutput {
 public:
  /// Declares the option. output: the folder that the command writes; overwrite: set by "redo".
  DoneOutput(Options& options, const std::string& output, bool& overwrite);
  DoneOutput(const DoneOutput&) = delete;
  DoneOutput& operator=(const DoneOutput&) = delete;

  bool is_asked_for() const { return !choice_.empty(); }
  /// Whether --if-done skip finds the whole output of the same command: the same version, options
  /// that change an output, and contents of the files that they name. Throws Error where something
  /// else is there.
  bool is_done(const std::string& command, const std::string& version);
  /// What the command prints then: a line, or the manifest of the output as JSON.
  std::string told() const;
  /// Records the run, which is done.
  void record() const;

 private:
  const Options& options_;
  const std::string& output_;
  bool& overwrite_;
  std::string choice_, request_sha256_;
};

}  // namespace kvcal
