#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kvcal {

/// Another run of this program. Its stderr comes here line by line; its stdout goes nowhere. It
/// ends with this process, whatever ends that.
class ChildProcess {
 public:
  /// Starts `kvcal arguments...`. Throws Error where the system has no process left.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  /// Ends it where it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// To wait on for input; -1 at its end.
  int descriptor() const { return pipe_; }
  /// The lines that have come, without waiting. At the end of all, descriptor() is -1.
  std::vector<std::string> read_lines();
  /// Waits for its end. Empty: it ended with 0; else why not: "exit code 1", "killed by signal 9".
  std::string wait();
  /// Asks it to stop, as Ctrl-C does.
  void interrupt();

 private:
  void close_pipe();

  pid_t process_ = -1;
  int pipe_ = -1;
  std::string partial_line_;
};

/// Called by a child at its start: it ends when the process that started it does, or did.
void end_with_parent(pid_t parent);

}  // namespace kvcal
