// Runs a program and tells what it cost: measure [--stop MILLISECONDS] SECONDS OUT COMMAND...
// writes "status seconds megabytes seconds-after-stop" to OUT. Seconds are the processor's, so that
// a busy machine changes nothing; megabytes the most that lay in memory at one time. A program that
// takes longer than SECONDS of real time is killed and has status 124. --stop: SIGTERM once it has
// had so much of the processor; the last number is "-" where it ended before.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

volatile sig_atomic_t child = 0;
volatile sig_atomic_t is_late = 0;
volatile sig_atomic_t is_stopped = 0;

void kill_child(int) {
  is_late = 1;
  kill(child, SIGKILL);
}

void stop_child(int) {
  is_stopped = 1;
  kill(child, SIGTERM);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

/// A timer of the child's processor time. false: the system has none.
bool stop_after(long milliseconds) {
  clockid_t clock{};
  if (clock_getcpuclockid(child, &clock) != 0) return false;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  if (timer_create(clock, &event, &timer) != 0) return false;
  itimerspec when{};
  when.it_value = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000};
  return timer_settime(timer, TIMER_ABSTIME, &when, nullptr) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  long stop = 0;
  if (argc > 2 && std::strcmp(argv[1], "--stop") == 0) {
    stop = std::atol(argv[2]);
    argv += 2;
    argc -= 2;
  }
  if (argc < 4) return 2;
  std::signal(SIGALRM, kill_child);
  std::signal(SIGUSR1, stop_child);
  child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    execvp(argv[3], argv + 3);
    _exit(127);
  }
  if (stop > 0 && !stop_after(stop)) return 2;
  alarm(static_cast<unsigned>(std::atoi(argv[1])));
  int status = 0;
  rusage used{};
  while (wait4(child, &status, 0, &used) < 0) {
  }
  std::FILE* out = std::fopen(argv[2], "w");
  if (!out) return 2;
  const int code = is_late ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const double seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  std::fprintf(out, "%d %.2f %ld ", code, seconds, used.ru_maxrss / 1024);
  if (is_stopped)
    std::fprintf(out, "%.2f\n", seconds - static_cast<double>(stop) * 1e-3);
  else
    std::fprintf(out, "-\n");
  return std::fclose(out) == 0 ? 0 : 2;
}
