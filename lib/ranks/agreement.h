#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal {

/// An error of one rank, thrown on every rank.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Thrown where a rank cannot continue because another rank said that it cannot; that rank reports
/// the reason.
class RankLeft : public Error {
 public:
  RankLeft() : Error("another rank stopped") {}
};

/// Runs body on every rank and returns the results by rank. An Error on one rank makes every rank
/// throw SharedError, which names rank, host and the watch's stage; an interrupt of one rank makes
/// every rank throw Interrupted. Of several errors, rank 0's choice counts. A single process throws
/// what body throws. on_failure is called before the others learn of the failure.
std::vector<std::vector<std::byte>> agree(Communicator& ranks,
                                          const std::function<std::vector<std::byte>()>& body,
                                          const std::function<void()>& on_failure = {});

/// Throws SharedError on every rank where a rank's bytes differ from rank 0's: "rank 2 on host n2
/// sees <what>". Collective.
void expect_same(Communicator& ranks, std::span<const std::byte> own, const std::string& what);

}  // namespace kvcal
