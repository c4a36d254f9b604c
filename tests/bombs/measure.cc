// Runs a program and tells what it cost: measure [--stop FILE MILLISECONDS] SECONDS OUT COMMAND...
// writes "status seconds megabytes seconds-after-stop" to OUT. Seconds are the processor's, so that
// a busy machine changes nothing; megabytes the most that lay in memory at one time. A program that
// takes longer than SECONDS of real time is killed and has status 124. --stop: SIGTERM once it has
// opened FILE and then had so much of the processor; the last number is "-" where it ended before.
#include <poll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
clockid_t child_clock{};
timespec stopped_at{};

void kill_child(int) {
  is_late = 1;
  kill(child, SIGKILL);
}

void stop_child(int) {
  clock_gettime(child_clock, &stopped_at);
  is_stopped = kill(child, SIGTERM) == 0;
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}
double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Sets a timer of the child's processor time, from now on.
void stop_after(long milliseconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  if (timer_create(child_clock, &event, &timer) != 0) return;
  timespec now{};
  clock_gettime(child_clock, &now);
  const long nanoseconds = now.tv_nsec + milliseconds % 1000 * 1'000'000;
  itimerspec when{};
  when.it_value = {.tv_sec = now.tv_sec + milliseconds / 1000 + nanoseconds / 1'000'000'000,
                   .tv_nsec = nanoseconds % 1'000'000'000};
  timer_settime(timer, TIMER_ABSTIME, &when, nullptr);
}

/// Waits until the child opens the watched file, or has ended. false: it has ended.
bool await_opening(int watch) {
  pollfd both[2] = {
      {.fd = watch, .events = POLLIN, .revents = 0},
      {.fd = static_cast<int>(syscall(SYS_pidfd_open, child, 0)), .events = POLLIN, .revents = 0}};
  while (poll(both, 2, -1) < 0) {
  }
  return (both[0].revents & POLLIN) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  long stop = 0;
  int watch = -1;
  if (argc > 3 && std::strcmp(argv[1], "--stop") == 0) {
    watch = inotify_init1(IN_CLOEXEC);
    if (inotify_add_watch(watch, argv[2], IN_OPEN) < 0) return 2;
    stop = std::atol(argv[3]);
    argv += 3;
    argc -= 3;
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
  alarm(static_cast<unsigned>(std::atoi(argv[1])));
  // Where a clock or timer fails the program has ended.
  if (watch >= 0 && await_opening(watch) && clock_getcpuclockid(child, &child_clock) == 0) {
    if (stop <= 0)
      stop_child(0);
    else
      stop_after(stop);
  }
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
    std::fprintf(out, "%.2f\n", seconds - seconds_of(stopped_at));
  else
    std::fprintf(out, "-\n");
  return std::fclose(out) == 0 ? 0 : 2;
}
