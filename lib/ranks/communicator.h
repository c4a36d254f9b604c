#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ranks/watch.h"

namespace kvcal {

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

/// A single process.
class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator(std::string host, Watch& watch) : Communicator(0, {std::move(host)}, watch) {}
  std::unique_ptr<Communicator> split(bool member) override;

 protected:
  void transfer(std::span<const std::span<const std::byte>>,
                std::span<const std::span<std::byte>>) override {}
};

}  // namespace kvcal
