#include "core/own_stack.h"

#include <pthread.h>

#include <cstddef>

namespace kvcal {
namespace {

/// The usual limit of systems. Only what is used of it takes memory.
constexpr size_t kStackBytes = size_t{8} << 20;

struct Task {
  const std::function<int()>* body;
  int result;
};

void* run_task(void* argument) {
  auto* task = static_cast<Task*>(argument);
  task->result = (*task->body)();
  return nullptr;
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
    is_started = pthread_create(&thread, &attributes, run_task, &task) == 0;
  }
  pthread_attr_destroy(&attributes);
  if (!is_started) return body();
  pthread_join(thread, nullptr);
  return task.result;
}

}  // namespace kvcal
