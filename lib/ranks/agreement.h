#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal {

/// The error of one rank, thrown on every rank.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Thrown where a rank cannot go on because another one said that it cannot; that one says why.
class RankLeft : public Error {
 public:
  RankLeft() : Error("another rank stopped") {}
};

/// Runs body on every rank and gives what it gave on each, by rank. Where it throws an Error on one
/// rank, every rank throws SharedError, which names rank, host and the watch's stage; where one was
/// interrupted, every rank throws Interrupted. Rank 0's say of several is the one that counts. A
/// process alone throws what body throws. on_failure is called before the others are told.
std::vector<std::vector<std::byte>> agree(Communicator& ranks,
                                          const std::function<std::vector<std::byte>()>& body,
                                          const std::function<void()>& on_failure = {});

/// Throws SharedError on every rank where a rank's bytes differ from rank 0's: "rank 2 on host n2
/// sees <what>". Collective.
void expect_same(Communicator& ranks, std::span<const std::byte> own, const std::string& what);

}  // namespace kvcal
