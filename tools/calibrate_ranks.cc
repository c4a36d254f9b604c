#include "calibrate_ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "calib/statistics.h"
#include "command_line.h"
#include "core/byte_stream.h"
#include "core/parallel.h"
#include "core/registry.h"
#include "ranks/agreement.h"
#include "table.h"

namespace kvcal {
namespace {

const Registry<std::optional<WeightsMode>> kWeightsModes{"--weights",
                                                         {{"auto", std::nullopt},
                                                          {"shared", WeightsMode::kShared},
                                                          {"exchange", WeightsMode::kExchange},
                                                          {"local", WeightsMode::kLocal}}};

void say(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", printable(message).c_str());
  std::fflush(stderr);
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// How many ranks of this machine may run on the same CPUs as this one. Collective.
int ranks_on_same_cpus(Communicator& ranks) {
  ByteWriter own;
  own.put_text(ranks.hosts().at(static_cast<size_t>(ranks.rank())));
  for (const int cpu : allowed_cpus()) own.put(cpu);
  const std::vector<std::byte> mine = own.take();
  const auto all = ranks.all_gather(mine);
  return static_cast<int>(std::ranges::count(all, mine));
}

}  // namespace

void add_rank_options(CLI::App& command, RankSettings& settings) {
  command
      .add_option("--weights", settings.weights,
                  "Of several MPI ranks, where each has the weights from: shared (one machine's "
                  "files), exchange (each reads a part and sends it), local (each reads all); auto "
                  "measures")
      ->capture_default_str()
      ->check(is_not_empty());
  command
      .add_option("--rank-timeout", settings.timeout,
                  "Seconds after which an MPI rank that does not answer ends the run")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e7));
}

std::optional<WeightsMode> wanted_weights(const RankSettings& settings) {
  return kWeightsModes.at(settings.weights);
}

void with_ranks(const RankSettings& settings, const std::function<void(RankSession&)>& body) {
  RankSession session({.timeout = std::chrono::duration<double>(settings.timeout), .say = say});
  if (session.is_alone()) {
    body(session);
    return session.done();
  }
  try {
    body(session);
    session.done();
  } catch (const InterruptedRun& interrupted) {
    if (session.is_first()) std::cerr << printable(interrupted.what()) << '\n';
    throw RunEnded(session.interrupted());
  } catch (const Interrupted&) {
    throw RunEnded(session.interrupted());
  } catch (const NotFinite& error) {
    throw RunEnded(session.failed(SharedError(error.message())));  // all ranks have come to it
  } catch (const Error& error) {
    throw RunEnded(session.failed(error));
  } catch (const std::bad_alloc&) {
    throw RunEnded(session.failed(Error("out of memory")));
  }
}

void together(Communicator& ranks, const std::function<void()>& body) {
  agree(ranks, [&] {
    body();
    return std::vector<std::byte>();
  });
}

DeviceOptions devices_of_rank(DeviceOptions options, Communicator& ranks) {
  if (ranks.size() == 1) return options;
  options.default_index = ranks.local_rank();
  const int sharing = ranks_on_same_cpus(ranks);
  const auto cpus = static_cast<int>(allowed_cpus().size());
  if (options.threads == 0 && cpus > 0) options.threads = std::max(1, cpus / sharing);
  return options;
}

void expect_same_run(Communicator& ranks, const ModelDir& model_dir, const Json& fingerprint) {
  if (ranks.size() == 1) return;
  expect_same_model(ranks, model_dir);
  for (const auto& [key, value] : fingerprint.items())
    expect_same(ranks, bytes_of(value.dump()), "another " + key + " (" + value.dump() + ")");
}

RankedRun make_ranked_run(Communicator& ranks, const RankSettings& settings,
                          const ModelDir& model_dir) {
  const WeightsChoice choice = choose_weights_mode(ranks, model_dir, wanted_weights(settings));
  if (ranks.rank() == 0 && ranks.size() > 1) {
    std::cerr << ranks.size() << " ranks on " << ranks.num_hosts()
              << (ranks.num_hosts() == 1 ? " machine" : " machines") << ", weights "
              << name_of(choice.mode);
    if (choice.read_rate && choice.exchange_rate)
      std::cerr << " (measured: " << byte_text(*choice.read_rate) << "/s read by each, "
                << byte_text(*choice.exchange_rate) << "/s exchanged)";
    std::cerr << '\n';
  }
  return {.ranks = &ranks, .mode = choice.mode};
}

void tell_work(Communicator& ranks, RankWork work, const RankWork& before) {
  if (ranks.size() == 1) return;
  const RankWork now = process_work();
  work.storage_bytes = now.storage_bytes - before.storage_bytes;
  work.processor_seconds = now.processor_seconds - before.processor_seconds;
  work.peak_bytes = now.peak_bytes;
  const std::vector<RankWork> all = gather_work(ranks, work);
  if (ranks.rank() != 0) return;
  Table table({"rank", "host", "samples", "tokens", "TFLOP", "MB of layers read", "MB from storage",
               "processor s", "peak MB"});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const RankWork& one = all[rank];
    const auto megabytes = [](uint64_t bytes) {
      return fixed("%.1f", 1e-6 * static_cast<double>(bytes));
    };
    table.add({std::to_string(rank), ranks.hosts()[rank], std::to_string(one.samples),
               std::to_string(one.tokens), fixed("%.6f", 1e-12 * one.flop),
               megabytes(one.bytes_read), megabytes(one.storage_bytes),
               fixed("%.2f", one.processor_seconds), megabytes(one.peak_bytes)});
  }
  table.print(std::cerr);
}

uint64_t RankPeers::all(uint64_t bits) {
  const auto told = ranks_.all_gather(std::as_bytes(std::span(&bits, 1)));
  for (const std::vector<std::byte>& one : told) {
    uint64_t other = 0;
    if (one.size() != sizeof other) fail("a rank's answer has ", one.size(), " bytes, expected 8");
    std::memcpy(&other, one.data(), sizeof other);
    bits &= other;
  }
  return bits;
}

}  // namespace kvcal
