#pragma once

#include <functional>

namespace kvcal {

/// Runs body on a stack that does not depend on the limit of a shell (ulimit -s), and makes stacks
/// of that size the default of threads that start later, those of libraries too. The depths that
/// readers and templates may recurse to are made for it. The first thread's stack serves where it
/// may grow so far, or its limit can be raised; else body runs in a thread, to which the caller's
/// leaves all signals. Where no thread can be started, body runs on the caller's stack. body may
/// not throw.
int run_on_own_stack(const std::function<int()>& body);

}  // namespace kvcal
