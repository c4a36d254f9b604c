#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kvcal {

/// A program as posix_spawn starts it.
struct Command {
  std::string program;             ///< path of the file
  std::vector<std::string> words;  ///< the program's name, then its arguments
};

/// A process whose stderr is read here line by line; its stdout is discarded.
class ChildProcess {
 public:
  /// Throws Error where the program cannot be started.
  explicit ChildProcess(const Command& command);
  /// Kills the process where it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// To poll for input; -1 after the end of input.
  int descriptor() const { return pipe_; }
  /// The lines that have arrived, without waiting. After the last ones descriptor() is -1.
  std::vector<std::string> read_lines();
  /// Waits for the end of the process. Empty for exit code 0, else "exit code 1" or "killed by
  /// signal 9".
  std::string wait();
  /// Asks the process to stop, as Ctrl-C does.
  void interrupt();

 private:
  void close_pipe();

  pid_t process_ = -1;
  int pipe_ = -1;
  std::string partial_line_;
};

/// Called by a child at its start: it is killed when the process that started it ends, or has
/// ended.
void end_with_parent(pid_t parent);

}  // namespace kvcal
