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

/// Events of other ranks, called by the lifeline's own thread.
struct LifelineEvents {
  /// The rank's process is gone and has not said why.
  std::function<void(int rank)> died;
  /// A rank that cannot go on says what is to be told. On rank 0 only.
  std::function<void(const std::string& message)> failed;
  /// A rank was interrupted.
  std::function<void()> interrupted;
  /// Rank 0 has told why the run ends.
  std::function<void()> ended;
};

/// A connection of every rank with rank 0, which the system closes when a process dies: so the
/// death of a rank is known at once, and by name. Ranks that cannot connect go without.
class Lifeline {
 public:
  /// Collective.
  Lifeline(Communicator& ranks, LifelineEvents events);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// Rank 0: of all that connected; others: whether this one is.
  bool is_connected() const { return !peers_.empty(); }
  /// Rank 0 is asked to tell it; false: it cannot be reached.
  bool tell_failure(const std::string& message);
  /// All ranks are told.
  void tell_interrupt();
  /// By rank 0: the run ends, and why has been told.
  void tell_end();
  /// What has arrived by now is known, by events, when is_answered(the question).
  uint64_t ask_for_news();
  bool is_answered(uint64_t question) const { return answered_ >= question; }
  /// This rank ends as it should: its closed connection is no death. No event comes any more.
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
  /// Ends the thread's wait.
  bool wake();
  /// Reads what a peer sent; false: its connection is closed.
  bool read(Peer& peer);
  void obey(Peer& peer);
  bool send(Peer& peer, char kind, const std::string& text);
  void send_all(char kind);

  LifelineEvents events_;
  std::mutex mutex_;  ///< of sends
  std::vector<Peer> peers_;
  int wake_ = -1;  ///< ends a wait of the thread
  std::atomic<uint64_t> asked_ = 0, answered_ = 0;
  std::atomic<bool> is_closing_ = false;
  std::thread thread_;
};

}  // namespace kvcal
