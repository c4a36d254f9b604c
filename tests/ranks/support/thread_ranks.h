#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal::test {

/// Is called by a rank before each pause of a wait for the ranks of missing.
using OnWait = std::function<void(int rank, std::span<const int> missing)>;

/// Runs body(communicator) in a thread for each rank, hosts.size() of them, which talk to each
/// other through memory. Returns what each rank threw; null: nothing.
std::vector<std::exception_ptr> run_ranks(const std::vector<std::string>& hosts, Watch& watch,
                                          const std::function<void(Communicator&)>& body,
                                          const OnWait& on_wait = {});

/// The same for so many ranks on as many hosts, n0, n1, …; fails where one throws.
void run_ranks(int count, const std::function<void(Communicator&)>& body);

/// The message of an Error, or "" of none.
std::string message_of(const std::exception_ptr& error);

}  // namespace kvcal::test
