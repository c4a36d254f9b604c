#include "core/own_stack.h"

#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstddef>

namespace kvcal {
namespace {

/// The usual limit of systems. Only what is used of it takes memory.
constexpr size_t kStackBytes = size_t{8} << 20;

/// Whether the stack of the first thread may grow to kStackBytes. The kernel asks for the limit
/// when the stack grows, not when the program starts.
bool has_room_on_first_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return true;
  if (limit.rlim_cur >= kStackBytes) return true;
  if (limit.rlim_max < kStackBytes) return false;
  limit.rlim_cur = kStackBytes;
  return ::setrlimit(RLIMIT_STACK, &limit) == 0;
}

struct Task {
  const std::function<int()>* body;
  int result;
};

void* run_task(void* argument) {
  auto* task = static_cast<Task*>(argument);
  task->result = (*task->body)();
  return nullptr;
}

/// The thread that only waits leaves signals to the one that works, so that they interrupt its
/// calls.
void leave_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

int run_on_own_stack(const std::function<int()>& body) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return body();
  Task task{.body = &body, .result = 0};
  pthread_t thread{};
  bool is_started = false;
  if (pthread_attr_setstacksize(&attributes, kStackBytes) == 0) {
#if defined(__linux__)
    pthread_setattr_default_np(&attributes);
#endif
    is_started =
        !has_room_on_first_stack() && pthread_create(&thread, &attributes, run_task, &task) == 0;
  }
  pthread_attr_destroy(&attributes);
  if (!is_started) return body();
  leave_signals();
  pthread_join(thread, nullptr);
  return task.result;
}

}  // namespace kvcal
