#include "ranks/lifeline.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "core/byte_stream.h"
#include "core/error.h"
#include "ranks/support/thread_ranks.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::run_ranks;

namespace {

/// A connection to rank 0 that this test writes to by itself.
class Stranger {
 public:
  explicit Stranger(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      fail("no connection to port ", port);
  }
  ~Stranger() { close(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void send(std::span<const std::byte> bytes) const {
    if (::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes))
      fail("not sent");
  }
  bool is_answered() const {
    char answer = 0;
    return ::recv(socket_, &answer, 1, 0) == 1;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
};

/// What a rank says first.
std::vector<std::byte> hello(uint64_t token, int32_t rank) {
  ByteWriter out;
  out.put(token);
  out.put(rank);
  out.put(int32_t{0});  // the rest of the structure
  return out.take();
}

}  // namespace

TEST_CASE("connections of strangers neither stop the ranks nor stand for one") {
  Watch watch;
  std::promise<int> died;
  int dead = 0;
  // A rank on one host with the others: rank 0 listens there alone.
  const auto errors = run_ranks({"n0", "n0", "n0"}, watch, [&](Communicator& ranks) {
    if (ranks.rank() != 1) {
      Lifeline lifeline(ranks, {.died = [&](int rank) { died.set_value(rank); },
                                .failed = [](const std::string&) {},
                                .interrupted = [] {},
                                .ended = [] {}});
      if (!lifeline.is_connected()) fail("rank ", ranks.rank(), " is not connected");
      if (ranks.rank() == 0) dead = died.get_future().get();
      ranks.barrier();
      return;
    }
    const auto place = ranks.broadcast({});
    ByteReader in(place);
    const auto token = in.get<uint64_t>();
    const auto port = in.get<uint16_t>();
    const auto num_addresses = in.get<uint64_t>();
    if (num_addresses != 1 || in.get<uint32_t>() != htonl(INADDR_LOOPBACK))
      fail("ranks of one host have ", num_addresses, " addresses");
    const Stranger silent(port), says_a_byte(port), says_a_part(port);
    says_a_byte.send(std::span<const std::byte>(place).first(1));
    const auto truth = hello(token, 1);
    says_a_part.send(std::span<const std::byte>(truth).first(9));
    const Stranger guesses(port), is_rank_0(port), is_too_high(port);
    guesses.send(hello(token + 1, 1));
    is_rank_0.send(hello(token, 0));
    is_too_high.send(hello(token, 3));
    // These are closed and not answered.
    for (const Stranger* one : {&guesses, &is_rank_0, &is_too_high})
      if (one->is_answered()) fail("a stranger was taken for a rank");
    Stranger own(port);
    own.send(truth);
    if (!own.is_answered()) fail("rank 1 was not answered");
    own.close();  // which is this rank's death
    ranks.barrier();
  });
  for (const auto& error : errors) CHECK(test::message_of(error) == "");
  CHECK(dead == 1);
}
