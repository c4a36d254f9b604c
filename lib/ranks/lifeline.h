#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal {

/// Events of other ranks; the lifeline's own thread calls them.
struct LifelineEvents {
  /// The rank's process is gone and has not said why.
  std::function<void(int rank)> died;
  /// A rank that cannot continue sends its message. Only on rank 0.
  std::function<void(const std::string& message)> failed;
  /// A rank was interrupted.
  std::function<void()> interrupted;
  /// Rank 0 has reported why the run ends.
  std::function<void()> ended;
};

/// Connection of every rank with rank 0. The system closes it when a process dies, so the others
/// learn of a dead rank at once, by name. Ranks that cannot connect run without it. Rank 0 listens
/// on the loopback address where all ranks are on one host, else on all networks, until every rank
/// has shown the token that MPI brought it; other connections neither count nor block.
class Lifeline {
 public:
  /// Collective.
  Lifeline(Communicator& ranks, LifelineEvents events);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// On rank 0: all ranks are connected; on others: this rank is.
  bool is_connected() const { return !peers_.empty(); }
  /// Asks rank 0 to report message; false: rank 0 cannot be reached.
  bool tell_failure(const std::string& message);
  /// Tells all ranks of an interrupt.
  void tell_interrupt();
  /// On rank 0: tells all ranks that the run ends and the reason was reported.
  void tell_end();
  /// Asks for a sign of life: when is_answered(result), the events that arrived before have been
  /// delivered.
  uint64_t ask_for_news();
  bool is_answered(uint64_t question) const { return answered_ >= question; }
  /// Marks this rank's end as regular, so its closed connection is no death. No event follows.
  void close();

 private:
  struct Peer {
    int rank = 0;
    int socket = -1;
    bool has_left = false;
    std::vector<char> received;
  };

  void listen(Communicator& ranks);
  void connect(Communicator& ranks, const std::vector<std::byte>& bytes);
  void watch();
  /// Wakes the thread.
  bool wake();
  /// Reads a peer's messages; false: its connection is closed or of no use.
  bool read(Peer& peer);
  /// Calls the events of the messages that have arrived whole; false: one is longer than any can
  /// be.
  bool handle_messages(Peer& peer);
  bool send(Peer& peer, char kind, const std::string& text);
  void send_all(char kind);

  LifelineEvents events_;
  std::mutex mutex_;  ///< for sends
  std::vector<Peer> peers_;
  int wake_ = -1;  ///< descriptor that wakes the thread
  std::atomic<uint64_t> asked_ = 0, answered_ = 0;
  std::atomic<bool> is_closing_ = false;
  std::thread thread_;
};

}  // namespace kvcal
