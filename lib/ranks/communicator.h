#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"

namespace kvcal {

/// Another rank died or does not answer, so no collective step is possible.
class LostRank : public Error {
 public:
  using Error::Error;
};

/// Stage of the run for messages, and the timeout of waits for other ranks. Thread-safe.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  /// now: clock for waits.
  explicit Watch(std::chrono::duration<double> timeout = std::chrono::seconds(1800),
                 std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)), timeout_(timeout) {}
  Clock::time_point now() const { return now_(); }

  /// Sets the name of the stage in messages: "layer 7".
  void set_stage(std::string stage) {
    const std::lock_guard lock(mutex_);
    stage_ = std::move(stage);
  }
  std::string stage() const {
    const std::lock_guard lock(mutex_);
    return stage_;
  }
  std::chrono::duration<double> timeout() const {
    const std::lock_guard lock(mutex_);
    return timeout_;
  }
  void wait_forever() {
    const std::lock_guard lock(mutex_);
    timeout_ = std::chrono::duration<double>::max();
  }

 private:
  std::function<Clock::time_point()> now_;
  mutable std::mutex mutex_;
  std::string stage_ = "the start";
  std::chrono::duration<double> timeout_;
};

/// Range of memory that one rank sends to the others.
struct MemoryPart {
  size_t begin = 0, size = 0;
};

/// The processes that calibrate one model together, and their exchange of bytes. All calls but the
/// getters are collective: every rank makes them, in the same order. A wait ends with LostRank,
/// which names the missing rank, after the watch's timeout, and with Interrupted. Not thread-safe;
/// other threads use a communicator from split.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// Host of each rank.
  const std::vector<std::string>& hosts() const { return hosts_; }
  int num_hosts() const;
  /// Index among the ranks of its host.
  int local_rank() const;
  /// "rank 2 on host n2"
  std::string name_of(int rank) const;
  Watch& watch() const { return *watch_; }

  /// The bytes of every rank, by rank; sizes may differ.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> own);
  /// The bytes of root.
  std::vector<std::byte> broadcast(std::span<const std::byte> bytes, int root = 0);
  void barrier() { all_gather({}); }
  /// Copies each rank's part of memory, by rank, to the same place in the others' memory.
  void exchange(std::span<std::byte> memory, std::span<const MemoryPart> parts);
  /// Communicator of the ranks with member true, in the same order; null for the others.
  virtual std::unique_ptr<Communicator> split(bool member) = 0;

 protected:
  /// hosts: of each rank. watch is borrowed.
  Communicator(int rank, std::vector<std::string> hosts, Watch& watch);

  /// Sends to[r] to every other rank r and receives from[r], whose size is known. The rank's own
  /// entries are ignored.
  virtual void transfer(std::span<const std::span<const std::byte>> to,
                        std::span<const std::span<std::byte>> from) = 0;

  /// One wait of a transfer: sleeps a little longer each time. The timeout counts from the last
  /// progress of a rank, not from the start.
  class Wait {
   public:
    explicit Wait(const Communicator& of);
    /// Records progress of the transfer with that rank.
    void heard(int rank);
    /// missing: ranks that have not answered. Throws LostRank or Interrupted.
    void pause(std::span<const int> missing);

   private:
    const Communicator& of_;
    std::vector<Watch::Clock::time_point> heard_;  ///< [ranks], time of the last progress
    Watch::Clock::time_point last_;                ///< latest of heard_
    std::optional<Watch::Clock::time_point> interrupted_at_;
    std::chrono::microseconds sleep_{20};
  };

 private:
  int rank_;
  std::vector<std::string> hosts_;
  Watch* watch_;
};

/// A plain value of every rank, by rank. Collective.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather_values(Communicator& ranks,
                                                                      const T& own) {
  std::vector<T> values;
  for (const auto& told : ranks.all_gather(std::as_bytes(std::span(&own, 1)))) {
    KVCAL_CHECK(told.size() == sizeof(T));
    std::memcpy(&values.emplace_back(), told.data(), sizeof(T));
  }
  return values;
}

/// A single process.
class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator(std::string host, Watch& watch) : Communicator(0, {std::move(host)}, watch) {}
  std::unique_ptr<Communicator> split(bool member) override;

 protected:
  void transfer(std::span<const std::span<const std::byte>>,
                std::span<const std::span<std::byte>>) override {}
};

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
