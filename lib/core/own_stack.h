#pragma once

#include <functional>

namespace kvcal {

/// Runs body on a thread whose stack does not depend on the limit that the system or a shell gives
/// (ulimit -s), and makes stacks of that size the default of threads that start later, those of
/// libraries too. The depths that readers and templates may recurse to are made for it. Where no
/// thread can be started, body runs on the caller's stack. body may not throw.
int run_on_own_stack(const std::function<int()>& body);

}  // namespace kvcal
