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

/// Bytes of memory that one rank has and the others want.
struct MemoryPart {
  size_t begin = 0, size = 0;
};

/// The processes that calibrate one model together, and how bytes go between them. All but the
/// getters are collective: every rank calls them, in the same order. A wait ends with LostRank that
/// names who is missing once the watch's time is over, and with Interrupted. One thread at a time
/// uses a communicator; another thread gets one of its own from split.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// The machine of each rank.
  const std::vector<std::string>& hosts() const { return hosts_; }
  int num_hosts() const;
  /// Among the ranks of its machine.
  int local_rank() const;
  /// "rank 2 on host n2"
  std::string name_of(int rank) const;
  Watch& watch() const { return *watch_; }

  /// The bytes of every rank, by rank; each may have another size.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> own);
  /// The bytes of root.
  std::vector<std::byte> broadcast(std::span<const std::byte> bytes, int root = 0);
  void barrier() { all_gather({}); }
  /// Each rank's part of memory, by rank, goes to the same place of the others' memory.
  void exchange(std::span<std::byte> memory, std::span<const MemoryPart> parts);
  /// The ranks among themselves for which member is true, in the same order; null for the others.
  virtual std::unique_ptr<Communicator> split(bool member) = 0;

 protected:
  /// hosts: of each rank. watch is borrowed.
  Communicator(int rank, std::vector<std::string> hosts, Watch& watch);

  /// Sends to[r] to every other rank r and receives from[r] of it, whose sizes are known. Own
  /// entries are ignored.
  virtual void transfer(std::span<const std::span<const std::byte>> to,
                        std::span<const std::span<std::byte>> from) = 0;

  /// One wait of a transfer: sleeps, a little longer each time. Who sends or takes something now
  /// and then is not silent, however long the whole takes.
  class Wait {
   public:
    explicit Wait(const Communicator& of);
    /// A part of the transfer with that rank is done.
    void heard(int rank);
    /// missing: the ranks that have not answered. Throws as the class says.
    void pause(std::span<const int> missing);

   private:
    const Communicator& of_;
    std::vector<Watch::Clock::time_point> heard_;  ///< [ranks], at the latest
    Watch::Clock::time_point last_;                ///< of them
    std::optional<Watch::Clock::time_point> interrupted_at_;
    std::chrono::microseconds sleep_{20};
  };

 private:
  int rank_;
  std::vector<std::string> hosts_;
  Watch* watch_;
};

/// A process alone.
class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator(std::string host, Watch& watch) : Communicator(0, {std::move(host)}, watch) {}
  std::unique_ptr<Communicator> split(bool member) override;

 protected:
  void transfer(std::span<const std::span<const std::byte>>,
                std::span<const std::span<std::byte>>) override {}
};

}  // namespace kvcal
