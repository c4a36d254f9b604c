#include "ranks/lifeline.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/byte_stream.h"

namespace kvcal {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A message: one byte of kind, the length of a text, the text.
constexpr char kLeaves = 'L', kFails = 'F', kIsInterrupted = 'I', kEnds = 'E';
constexpr size_t kHead = 1 + sizeof(uint32_t), kMaxText = size_t{1} << 20;
constexpr int kConnectMilliseconds = 3000;  ///< to reach an address that may lead nowhere
constexpr int kAnswerMilliseconds =
    30000;  ///< of a process that was reached, on a busy machine too

/// Token that a connecting rank must show, so that no other program is taken for a rank.
using Token = uint64_t;
struct Hello {
  Token token;
  int32_t rank;
};

struct Place {
  Token token = 0;
  uint16_t port = 0;
  std::vector<uint32_t> addresses;  ///< IPv4, as the network writes them

  std::vector<std::byte> bytes() const {
    ByteWriter out;
    out.put(token);
    out.put(port);
    out.put(static_cast<uint64_t>(addresses.size()));
    for (const uint32_t address : addresses) out.put(address);
    return out.take();
  }
  static Place from(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    Place place;
    place.token = in.get<Token>();
    place.port = in.get<uint16_t>();
    place.addresses.resize(in.get_count(sizeof(uint32_t)));
    for (uint32_t& address : place.addresses) address = in.get<uint32_t>();
    return place;
  }
};

/// Addresses of this machine's networks; the loopback address, for ranks on the same machine, is
/// last.
std::vector<uint32_t> own_addresses() {
  std::vector<uint32_t> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) == 0) {
    for (const ifaddrs* one = all; one; one = one->ifa_next)
      if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0 &&
          (one->ifa_flags & IFF_LOOPBACK) == 0) {
        sockaddr_in address{};
        std::memcpy(&address, one->ifa_addr, sizeof address);
        found.push_back(address.sin_addr.s_addr);
      }
    ::freeifaddrs(all);
  }
  found.push_back(htonl(INADDR_LOOPBACK));
  return found;
}

/// A TCP socket that never blocks; -1 where the system has none.
int new_socket() {
  return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/// address: as the network writes it.
sockaddr_in ipv4(uint32_t address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  result.sin_addr.s_addr = address;
  return result;
}

bool is_ready(int socket, short events, int milliseconds) {
  pollfd waiting{.fd = socket, .events = events, .revents = 0};
  return ::poll(&waiting, 1, milliseconds) == 1;
}

/// Writes all bytes or fails; waits at most kAnswerMilliseconds for room.
bool write_all(int socket, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (!((errno == EAGAIN || errno == EINTR) &&
                 is_ready(socket, POLLOUT, kAnswerMilliseconds))) {
      return false;
    }
  }
  return true;
}

/// most: time for each step, in milliseconds.
std::optional<int> connected_to(uint32_t address, const Place& place, int rank, int most) {
  const int socket = new_socket();
  if (socket < 0) return std::nullopt;
  const sockaddr_in to = ipv4(address, place.port);
  ::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  int error = 1;
  socklen_t length = sizeof error;
  const Hello hello{.token = place.token, .rank = rank};
  char answer = 0;
  // The other side answers, so that another program's port is not taken for rank 0's.
  if (is_ready(socket, POLLOUT, std::min(kConnectMilliseconds, most)) &&
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0 &&
      write_all(socket, {reinterpret_cast<const char*>(&hello), sizeof hello}) &&
      is_ready(socket, POLLIN, most) && ::recv(socket, &answer, 1, 0) == 1 && answer == kLeaves)
    return socket;
  ::close(socket);
  return std::nullopt;
}

/// kAnswerMilliseconds, or the time after which a rank counts as lost where that is less.
int answer_milliseconds(const Communicator& ranks) {
  const double most = 1e3 * ranks.watch().timeout().count();
  return most < kAnswerMilliseconds ? static_cast<int>(most) : kAnswerMilliseconds;
}

/// Connections to a listening socket that have not said yet who they are. None is waited for alone,
/// so a stranger that sends nothing, or too little, is in nobody's way.
class Callers {
 public:
  Callers(int socket, Token token, int num_ranks)
      : socket_(socket), token_(token), num_ranks_(num_ranks) {}
  ~Callers() {
    for (const Caller& caller : callers_) ::close(caller.socket);
  }
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  struct Rank {
    int rank, socket;
  };
  /// The next rank that has shown the token and was answered; nullopt: none until end.
  std::optional<Rank> next(Clock::time_point end) {
    while (true) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      if (left.count() <= 0) return std::nullopt;
      std::vector<pollfd> waiting{{.fd = socket_, .events = POLLIN, .revents = 0}};
      for (const Caller& caller : callers_)
        waiting.push_back({.fd = caller.socket, .events = POLLIN, .revents = 0});
      if (::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) < 0 &&
          errno != EINTR)
        return std::nullopt;
      for (size_t i = waiting.size() - 1; i > 0; --i)
        if (waiting[i].revents != 0)
          if (const auto rank = receive_hello(i - 1)) return rank;
      if ((waiting[0].revents & POLLIN) != 0) accept();
    }
  }

 private:
  struct Caller {
    int socket = -1;
    Hello hello{};
    size_t size = 0;  ///< bytes of hello that have arrived
  };
  /// More than these at a time are strangers: the one that waits longest has to go.
  static constexpr size_t kMostStrangers = 256;

  void accept() {
    const int accepted = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) return;
    if (callers_.size() >= kMostStrangers + static_cast<size_t>(num_ranks_)) drop(0);
    callers_.push_back({.socket = accepted});
  }
  void drop(size_t i) {
    ::close(callers_[i].socket);
    callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  /// Reads more of a caller's Hello; the rank once it is whole, right and answered.
  std::optional<Rank> receive_hello(size_t i) {
    Caller& caller = callers_[i];
    const ssize_t got = ::recv(caller.socket, reinterpret_cast<char*>(&caller.hello) + caller.size,
                               sizeof(Hello) - caller.size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (got > 0) caller.size += static_cast<size_t>(got);
    if (got > 0 && caller.size < sizeof(Hello)) return std::nullopt;
    const Hello& hello = caller.hello;
    const Rank rank{.rank = hello.rank, .socket = caller.socket};
    // One byte fits into the buffer of a connection that is new.
    if (caller.size < sizeof(Hello) || hello.token != token_ || hello.rank <= 0 ||
        hello.rank >= num_ranks_ ||
        ::send(caller.socket, &kLeaves, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
      drop(i);
      return std::nullopt;
    }
    callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(i));
    return rank;
  }

  int socket_;
  Token token_;
  int num_ranks_;
  std::vector<Caller> callers_;
};

}  // namespace

Lifeline::Lifeline(Communicator& ranks, LifelineEvents events) : events_(std::move(events)) {
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (ranks.rank() == 0) {
    listen(ranks);
  } else {
    connect(ranks, ranks.broadcast({}));
  }
  if (!peers_.empty() && wake_ >= 0) thread_ = std::thread([this] { watch(); });
}

void Lifeline::listen(Communicator& ranks) {
  // Ranks of one machine need no other network than its own.
  const bool is_local = ranks.num_hosts() == 1;
  Place place{.addresses = is_local ? std::vector{htonl(INADDR_LOOPBACK)} : own_addresses()};
  const int socket = new_socket();
  sockaddr_in own = ipv4(htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY), 0);
  socklen_t length = sizeof own;
  if (socket >= 0 && ::getrandom(&place.token, sizeof place.token, 0) == sizeof place.token &&
      ::bind(socket, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0 &&
      ::listen(socket, SOMAXCONN) == 0 &&
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0)
    place.port = ntohs(own.sin_port);
  ranks.broadcast(place.bytes());
  if (place.port != 0) {
    Callers callers(socket, place.token, ranks.size());
    const auto end = Clock::now() + milliseconds(answer_milliseconds(ranks));
    while (std::ssize(peers_) < ranks.size() - 1) {
      const auto rank = callers.next(end);
      if (!rank) break;
      peers_.push_back({.rank = rank->rank, .socket = rank->socket, .received = {}});
    }
  }
  if (socket >= 0) ::close(socket);
}

void Lifeline::connect(Communicator& ranks, const std::vector<std::byte>& bytes) {
  const Place place = Place::from(bytes);
  if (place.port == 0) return;
  const int most = answer_milliseconds(ranks);
  for (const uint32_t address : place.addresses)
    if (const auto socket = connected_to(address, place, ranks.rank(), most)) {
      peers_.push_back({.rank = 0, .socket = *socket, .received = {}});
      return;
    }
}

Lifeline::~Lifeline() {
  close();
  for (const Peer& peer : peers_) ::close(peer.socket);
  if (wake_ >= 0) ::close(wake_);
}

void Lifeline::close() {
  if (!is_closing_.exchange(true)) send_all(kLeaves);
  if (!wake()) return;
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

bool Lifeline::wake() {
  const uint64_t one = 1;
  return wake_ >= 0 && ::write(wake_, &one, sizeof one) == sizeof one;
}

uint64_t Lifeline::ask_for_news() {
  const uint64_t question = ++asked_;
  if (!thread_.joinable() || !wake()) answered_ = question;
  return question;
}

void Lifeline::watch() {
  while (!is_closing_) {
    const uint64_t question = asked_;
    std::vector<pollfd> waiting{{.fd = wake_, .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_)  // a negative one is passed over
      waiting.push_back({.fd = peer.has_left ? -1 : peer.socket, .events = POLLIN, .revents = 0});
    // A question is answered when everything that had arrived before has been read.
    const int milliseconds = question == answered_ ? -1 : 0;
    if (::poll(waiting.data(), waiting.size(), milliseconds) < 0 && errno != EINTR) return;
    for (size_t i = 0; i < peers_.size() && !is_closing_; ++i) {
      Peer& peer = peers_[i];
      if (waiting[i + 1].revents == 0 || read(peer)) continue;
      if (!std::exchange(peer.has_left, true) && !is_closing_) events_.died(peer.rank);
    }
    uint64_t woken = 0;
    if ((waiting[0].revents & POLLIN) != 0 && ::read(wake_, &woken, sizeof woken) < 0) return;
    answered_ = question;
  }
}

bool Lifeline::read(Peer& peer) {
  char bytes[4096];
  const ssize_t got = ::recv(peer.socket, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  peer.received.insert(peer.received.end(), bytes, bytes + got);
  return handle_messages(peer);
}

bool Lifeline::handle_messages(Peer& peer) {
  std::vector<char>& received = peer.received;
  while (received.size() >= kHead) {
    uint32_t size = 0;
    std::memcpy(&size, received.data() + 1, sizeof size);
    if (size > kMaxText) return false;
    if (received.size() < kHead + size) return true;
    const char kind = received[0];
    const std::string text(received.data() + kHead, size);
    received.erase(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(kHead + size));
    if (kind == kLeaves) peer.has_left = true;
    if (kind == kFails) events_.failed(text);
    if (kind == kEnds) events_.ended();
    if (kind == kIsInterrupted) {
      events_.interrupted();
      if (peer.rank != 0) send_all(kIsInterrupted);  // rank 0 passes it on
    }
  }
  return true;
}

bool Lifeline::send(Peer& peer, char kind, const std::string& text) {
  std::vector<char> bytes(kHead);
  const auto size = static_cast<uint32_t>(std::min(text.size(), kMaxText));
  bytes[0] = kind;
  std::memcpy(bytes.data() + 1, &size, sizeof size);
  bytes.insert(bytes.end(), text.begin(), text.begin() + size);
  const std::lock_guard lock(mutex_);
  return write_all(peer.socket, bytes);
}

void Lifeline::send_all(char kind) {
  for (Peer& peer : peers_) send(peer, kind, "");
}

bool Lifeline::tell_failure(const std::string& message) {
  return !peers_.empty() && peers_[0].rank == 0 && send(peers_[0], kFails, message);
}

void Lifeline::tell_interrupt() {
  send_all(kIsInterrupted);
}

void Lifeline::tell_end() {
  send_all(kEnds);
}

}  // namespace kvcal
