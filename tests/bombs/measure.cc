// Runs a program and tells what it cost: measure SECONDS OUT COMMAND... writes "status seconds
// megabytes" to OUT. Seconds are the processor's, so that a busy machine changes nothing; megabytes
// the most that lay in memory at one time. A program that takes longer than SECONDS of real time is
// killed and has status 124.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace {

volatile sig_atomic_t child = 0;
volatile sig_atomic_t is_late = 0;

void kill_child(int) {
  is_late = 1;
  kill(child, SIGKILL);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    execvp(argv[3], argv + 3);
    _exit(127);
  }
  std::signal(SIGALRM, kill_child);
  alarm(static_cast<unsigned>(std::atoi(argv[1])));
  int status = 0;
  rusage used{};
  while (wait4(child, &status, 0, &used) < 0) {
  }
  std::FILE* out = std::fopen(argv[2], "w");
  if (!out) return 2;
  const int code = is_late ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::fprintf(out, "%d %.2f %ld\n", code, seconds_of(used.ru_utime) + seconds_of(used.ru_stime),
               used.ru_maxrss / 1024);
  return std::fclose(out) == 0 ? 0 : 2;
}
