#include "sweep/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/error.h"

extern char** environ;

namespace kvcal {
namespace {

/// Descriptors and process group that posix_spawn gives the child.
class SpawnSettings {
 public:
  explicit SpawnSettings(int error_pipe) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, error_pipe, STDERR_FILENO);
    // A group of its own: Ctrl-C reaches the parent alone, which then ends its children.
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes_, 0);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

ChildProcess::ChildProcess(const Command& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe: ", std::strerror(errno));
  pipe_ = ends[0];
  ::fcntl(pipe_, F_SETFL, O_NONBLOCK);
  std::vector<std::string> words = command.words;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const SpawnSettings settings(ends[1]);
  const int error = ::posix_spawn(&process_, command.program.c_str(), settings.actions(),
                                  settings.attributes(), pointers.data(), environ);
  ::close(ends[1]);
  if (error != 0) {
    process_ = -1;  // posix_spawn leaves it unspecified
    close_pipe();
    fail("cannot start ", words.at(0), ": ", std::strerror(error));
  }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      partial_line_(std::move(other.partial_line_)) {}

ChildProcess::~ChildProcess() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    wait();
  }
  close_pipe();
}

void ChildProcess::close_pipe() {
  if (pipe_ >= 0) ::close(pipe_);
  pipe_ = -1;
}

std::vector<std::string> ChildProcess::read_lines() {
  std::vector<std::string> lines;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(pipe_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return lines;
    if (count <= 0) break;
    partial_line_.append(buffer, static_cast<size_t>(count));
    size_t at = 0;
    for (size_t end; (end = partial_line_.find('\n', at)) != std::string::npos; at = end + 1)
      lines.push_back(partial_line_.substr(at, end - at));
    partial_line_.erase(0, at);
  }
  close_pipe();
  if (!partial_line_.empty()) lines.push_back(std::exchange(partial_line_, {}));
  return lines;
}

std::string ChildProcess::wait() {
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : "exit code " + std::to_string(code);
}

void ChildProcess::interrupt() {
  if (process_ > 0) ::kill(process_, SIGTERM);
}

void end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::raise(SIGKILL);  // the parent ended before the call above
}

}  // namespace kvcal
