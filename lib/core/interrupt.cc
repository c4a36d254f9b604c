#include "core/interrupt.h"

#include <atomic>

#include "core/error.h"
#include "core/file_in_use.h"
#include "core/process.h"

namespace kvcal {
namespace {

// Process-wide state, because a signal handler can reach nothing else.
std::atomic<bool> interrupt_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void request_interrupt() noexcept {
  interrupt_requested = true;
}
void clear_interrupt() noexcept {
  interrupt_requested = false;
}
bool is_interrupt_requested() noexcept {
  return interrupt_requested;
}
void throw_if_interrupted() {
  if (is_interrupt_requested()) throw Interrupted();
  throw_if_file_changed();
  throw_if_out_of_memory();
}

}  // namespace kvcal
