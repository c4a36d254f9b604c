#pragma once

#include <cstddef>
#include <functional>

/// Stacks that take turns on one system thread.
namespace kvcal::gpu::simulator {

/// Runs fiber number index of this system thread until it leaves or its body returns; a fiber that
/// has returned starts anew. True when the body has returned.
bool enter_fiber(size_t index, const std::function<void()>& body);
/// Leaves the running fiber, back to the caller of enter_fiber.
void leave_fiber();

}  // namespace kvcal::gpu::simulator
