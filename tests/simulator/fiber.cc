#include "simulator/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace kvcal::gpu::simulator {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

#if defined(__x86_64__)
// swapcontext asks the kernel for the signal mask at each switch, which costs more than most
// kernels; only what a call must keep is kept here.
extern "C" void kvcal_simulator_switch(void** save, void* load);
asm(R"(
.text
.globl kvcal_simulator_switch
.type kvcal_simulator_switch, @function
kvcal_simulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kvcal_simulator_switch, .-kvcal_simulator_switch
.section .note.GNU-stack,"",@progbits
.text
)");

struct Context {
  void* stack_pointer = nullptr;
  void prepare(std::byte* stack, void (*entry)()) {
    auto* top = reinterpret_cast<void**>(stack + kStackBytes);
    *--top = nullptr;  // keeps the entry's stack aligned as after a call
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    stack_pointer = top;
  }
  void switch_to(Context& other) { kvcal_simulator_switch(&stack_pointer, other.stack_pointer); }
};
#else
struct Context {
  ucontext_t context{};
  void prepare(std::byte* stack, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = kStackBytes;
    makecontext(&context, entry, 0);
  }
  void switch_to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

struct Fiber {
  Fiber() {
    stack = static_cast<std::byte*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stack == MAP_FAILED) std::abort();
  }
  ~Fiber() { munmap(stack, kStackBytes); }
  std::byte* stack = nullptr;
  Context context;
  bool started = false, done = false;
  void* fake_stack = nullptr;
};

struct Threads {
  std::vector<std::unique_ptr<Fiber>> fibers;
  Context scheduler;
  Fiber* running = nullptr;
  const std::function<void()>* body = nullptr;
  void* fake_stack = nullptr;
  const void* stack = nullptr;
  size_t stack_size = 0;
};
thread_local Threads threads;

// Tells the address sanitizer which stack is in use.
void before_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, stack, size);
#endif
}
void after_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** stack,
                  [[maybe_unused]] size_t* size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, stack, size);
#endif
}

void to_scheduler(bool for_good) {
  Fiber& fiber = *threads.running;
  before_switch(for_good ? nullptr : &fiber.fake_stack, threads.stack, threads.stack_size);
  fiber.context.switch_to(threads.scheduler);
  after_switch(fiber.fake_stack, &threads.stack, &threads.stack_size);
}

void entry() {
  after_switch(nullptr, &threads.stack, &threads.stack_size);
  (*threads.body)();
  threads.running->done = true;
  to_scheduler(true);
}

}  // namespace

bool enter_fiber(size_t index, const std::function<void()>& body) {
  while (threads.fibers.size() <= index) threads.fibers.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *threads.fibers[index];
  if (!fiber.started) {
    fiber.context.prepare(fiber.stack, entry);
    fiber.started = true;
    fiber.done = false;
  }
  threads.running = &fiber;
  threads.body = &body;
  before_switch(&threads.fake_stack, fiber.stack, kStackBytes);
  threads.scheduler.switch_to(fiber.context);
  after_switch(threads.fake_stack, nullptr, nullptr);
  if (fiber.done) fiber.started = false;
  return fiber.done;
}

void leave_fiber() {
  to_scheduler(false);
}

}  // namespace kvcal::gpu::simulator
