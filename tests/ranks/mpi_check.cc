#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "core/hash.h"
#include "core/interrupt.h"
#include "forward/divided_forward.h"
#include "forward/support/forward_run.h"
#include "ranks/communicator.h"
#include "ranks/rank_session.h"
#include "ranks/ranked_forward.h"
#include "ranks/support/communicator_checks.h"
#include "ranks/weights_mode.h"

// What lib/ranks does over a real MPI; mpi_test.sh starts it on several ranks:
//   mpi_check WHAT [TIMEOUT [RANK [WEIGHTS [MODEL]]]]
namespace kvcal {
namespace {

/// What all ranks see of a model, as a hash; on rank 0 what each of them read and took is told.
std::string forward_hash(Communicator& ranks, const std::string& folder, const std::string& mode) {
  const ModelDir model_dir(folder);
  expect_same_model(ranks, model_dir);
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const auto backend = kBackends.at("cpu")({.num_threads = 1});
  Backend* const backends[] = {backend.get()};
  std::vector<std::vector<TokenId>> samples(7);
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].resize(5 + 3 * i);
    for (size_t at = 0; at < samples[i].size(); ++at)
      samples[i][at] =
          static_cast<TokenId>((i * 31 + at * 7) % static_cast<size_t>(config.vocab_size));
    lengths.push_back(static_cast<int64_t>(samples[i].size()));
  }
  const SampleAssignment assignment =
      assign_samples(lengths, sample_work(config, weights), ranks.size());
  std::vector<std::span<const TokenId>> own;
  for (const size_t sample : assignment.samples_of[static_cast<size_t>(ranks.rank())])
    own.emplace_back(samples[sample]);
  const std::optional<WeightsMode> wanted = mode == "shared" ? std::optional(WeightsMode::kShared)
                                            : mode == "exchange"
                                                ? std::optional(WeightsMode::kExchange)
                                            : mode == "local" ? std::optional(WeightsMode::kLocal)
                                                              : std::nullopt;
  const WeightsChoice choice = choose_weights_mode(ranks, model_dir, wanted);
  const auto bytes = make_layer_bytes(choice.mode, ranks, model_dir, weights, !own.empty());
  SilentDiagnostics silent;
  std::unique_ptr<LayerForward> local;
  if (!own.empty())
    local = std::make_unique<DividedForward>(
        config, weights, backends, own,
        LayerwiseOptions{.batch_tokens = 20, .layer_bytes = bytes.get()}, silent);
  RankedForward forward(std::move(local), ranks, assignment, lengths, bytes.get());
  const auto begin = Watch::Clock::now();
  const std::string hash =
      sha256_hex(test::run_layers(forward, config, test::RunMode::kQuantized, test::kObserveAll));
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::ostringstream told;
  told << "read " << (bytes ? bytes->bytes_read() : 0) << " bytes, peak " << used.ru_maxrss / 1024
       << " MiB, " << std::chrono::duration<double>(Watch::Clock::now() - begin).count() << " s";
  const std::string text = told.str();
  const auto all = ranks.all_gather(std::as_bytes(std::span(text)));
  for (size_t i = 0; i < all.size() && ranks.rank() == 0; ++i)
    std::fprintf(stderr, "%s: %.*s\n", ranks.name_of(static_cast<int>(i)).c_str(),
                 static_cast<int>(all[i].size()), reinterpret_cast<const char*>(all[i].data()));
  if (ranks.rank() == 0 && choice.read_rate)
    std::fprintf(stderr, "%s, reading %.0f MB/s, exchanging %.0f MB/s\n",
                 std::string(name_of(choice.mode)).c_str(), *choice.read_rate / 1e6,
                 *choice.exchange_rate / 1e6);
  return hash;
}

/// Inodes of this process's sockets.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string place = std::filesystem::read_symlink(entry, error).string();
    if (place.starts_with("socket:[")) inodes.insert(place.substr(8, place.size() - 9));
  }
  return inodes;
}

/// Ports on which this process listens by TCP.
std::vector<uint16_t> listened_ports() {
  const std::set<std::string> own = own_sockets();
  std::vector<uint16_t> ports;
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, address, peer, state, skipped, inode;
    fields >> number >> address >> peer >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> inode;
    if (state == "0A" && own.contains(inode))
      ports.push_back(
          static_cast<uint16_t>(std::stoul(address.substr(address.find(':') + 1), {}, 16)));
  }
  return ports;
}

/// The first rank sends a byte, and no more, to each port on which another one listens.
void send_stray_bytes(Communicator& ranks) {
  const std::vector<uint16_t> own = listened_ports();
  const auto all = ranks.all_gather(std::as_bytes(std::span(own)));
  int sent = 0;
  for (size_t rank = 1; rank < all.size() && ranks.rank() == 0; ++rank)
    for (size_t at = 0; at < all[rank].size(); at += sizeof(uint16_t)) {
      uint16_t port = 0;
      std::memcpy(&port, &all[rank][at], sizeof port);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(port);
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);  // open to the end of the process
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
          ::send(socket, "x", 1, MSG_NOSIGNAL) == 1)
        ++sent;
    }
  if (ranks.rank() == 0) std::fprintf(stderr, "sent a byte to %d ports\n", sent);
  for (int i = 0; i < 100; ++i) ranks.barrier();
}

/// What a run would do between its collective steps, and how it goes wrong.
void misbehave(RankSession& session, const std::string& what, int who) {
  Communicator& ranks = session.ranks();
  session.set_stage("layer 7");
  const bool is_it = ranks.rank() == who;
  ranks.barrier();
  if (what == "stray") return send_stray_bytes(ranks);
  while (what == "silent" && is_it) ::pause();  // until it is killed
  if (what == "killed" && is_it) std::raise(SIGKILL);
  if (what == "crashes" && is_it) std::abort();
  if (what == "interrupted" && is_it) std::raise(SIGINT);
  if (what == "alone" && is_it) fail("what only this rank knows");
  agree(ranks, [&]() -> std::vector<std::byte> {
    if (what == "shared" && is_it) fail("what all are told");
    if (what != "works") {  // computes for a while, as the other ranks do
      for (int i = 0; i < 50; ++i) {
        throw_if_interrupted();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    return {};
  });
  ranks.barrier();
}

void run(RankSession& session, const std::string& what, int who, const std::string& mode,
         const std::string& folder) {
  Communicator& ranks = session.ranks();
  if (what == "communicate") {
    test::check_communicator(ranks);
    if (ranks.size() != 2) return;
    // More than one message holds.
    const std::vector<std::byte> large(ranks.rank() == 0 ? (size_t{1} << 30) + 12345 : 0,
                                       std::byte{7});
    const auto all = ranks.all_gather(large);
    test::expect(all[0].size() == (size_t{1} << 30) + 12345 && all[0].back() == std::byte{7},
                 "more than a GiB");
  } else if (what == "forward") {
    const std::string hash = forward_hash(
        ranks, folder.empty() ? test::model_fixture("mixtral").string() : folder, mode);
    expect_same(ranks, std::as_bytes(std::span(hash)), "other statistics");
    if (session.is_first()) std::printf("%s\n", hash.c_str());
  } else {
    misbehave(session, what, who);
  }
}

int run(const std::string& what, double timeout, int who, const std::string& mode,
        const std::string& folder) {
  RankSession session(
      {.timeout = std::chrono::duration<double>(timeout), .say = [](const std::string& message) {
         std::fprintf(stderr, "error: %s\n", message.c_str());
       }});
  try {
    run(session, what, who, mode, folder);
  } catch (const Error& error) {
    return session.failed(error);
  } catch (const Interrupted&) {
    return session.interrupted();
  }
  session.done();
  return 0;
}

}  // namespace
}  // namespace kvcal

int main(int argc, char** argv) {
  for (const int signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int) { kvcal::request_interrupt(); });
  return kvcal::run(argc > 1 ? argv[1] : "communicate", argc > 2 ? std::atof(argv[2]) : 60.0,
                    argc > 3 ? std::atoi(argv[3]) : 1, argc > 4 ? argv[4] : "auto",
                    argc > 5 ? argv[5] : "");
}
