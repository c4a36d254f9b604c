#include "ranks/communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "core/byte_stream.h"
#include "core/file_in_use.h"
#include "core/interrupt.h"

namespace kvcal {
namespace {

constexpr std::chrono::milliseconds kInterruptGrace{300};
/// Limit of the sleep: a wait for computing ranks may be long, a wait for bytes in transit is not.
constexpr std::chrono::microseconds kLongestSleep{1000};
constexpr std::chrono::seconds kAwake{2};

}  // namespace

Communicator::Communicator(int rank, std::vector<std::string> hosts, Watch& watch)
    : rank_(rank), hosts_(std::move(hosts)), watch_(&watch) {
  KVCAL_CHECK(rank_ >= 0 && rank_ < size());
}

int Communicator::num_hosts() const {
  return static_cast<int>(std::set<std::string>(hosts_.begin(), hosts_.end()).size());
}

int Communicator::local_rank() const {
  return static_cast<int>(
      std::count(hosts_.begin(), hosts_.begin() + rank_, hosts_[static_cast<size_t>(rank_)]));
}

std::string Communicator::name_of(int rank) const {
  return "rank " + std::to_string(rank) + " on host " + hosts_.at(static_cast<size_t>(rank));
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> own) {
  const auto ranks = static_cast<size_t>(size()), self = static_cast<size_t>(rank_);
  std::vector<uint64_t> sizes(ranks);
  sizes[self] = own.size();
  std::vector<std::span<const std::byte>> to(ranks, std::as_bytes(std::span(&sizes[self], 1)));
  std::vector<std::span<std::byte>> from;
  for (uint64_t& size : sizes) from.push_back(std::as_writable_bytes(std::span(&size, 1)));
  transfer(to, from);
  std::vector<std::vector<std::byte>> all(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    if (i == self) continue;
    all[i].resize(sizes[i]);
    from[i] = all[i];
    to[i] = own;
  }
  transfer(to, from);
  all[self].assign(own.begin(), own.end());
  return all;
}

std::vector<std::byte> Communicator::broadcast(std::span<const std::byte> bytes, int root) {
  return std::move(all_gather(rank_ == root ? bytes : std::span<const std::byte>())
                       .at(static_cast<size_t>(root)));
}

void Communicator::exchange(std::span<std::byte> memory, std::span<const MemoryPart> parts) {
  KVCAL_CHECK(parts.size() == hosts_.size());
  const auto part = [&](size_t rank) {
    KVCAL_CHECK(parts[rank].begin <= memory.size() &&
                parts[rank].size <= memory.size() - parts[rank].begin);
    return memory.subspan(parts[rank].begin, parts[rank].size);
  };
  std::vector<std::span<const std::byte>> to(parts.size(), part(static_cast<size_t>(rank_)));
  std::vector<std::span<std::byte>> from;
  for (size_t i = 0; i < parts.size(); ++i) from.push_back(part(i));
  transfer(to, from);
}

Communicator::Wait::Wait(const Communicator& of)
    : of_(of), heard_(static_cast<size_t>(of.size()), of.watch().now()), last_(heard_[0]) {}

void Communicator::Wait::heard(int rank) {
  last_ = heard_.at(static_cast<size_t>(rank)) = of_.watch().now();
}

void Communicator::Wait::pause(std::span<const int> missing) {
  const auto now = of_.watch().now();
  if (is_interrupt_requested()) {
    // Usually all ranks are interrupted, and their messages about it are in transit.
    if (!interrupted_at_) interrupted_at_ = now;
    if (now - *interrupted_at_ >= kInterruptGrace) throw Interrupted();
  }
  const auto silence = [&](int rank) {
    return std::chrono::duration<double>(now - heard_.at(static_cast<size_t>(rank)));
  };
  const auto is_silent = [&](int rank) { return silence(rank) >= of_.watch().timeout(); };
  if (const auto first = std::ranges::find_if(missing, is_silent); first != missing.end()) {
    const auto others = std::ranges::count_if(missing, is_silent) - 1;
    throw LostRank(of_.name_of(*first) + " has not answered for " +
                   std::to_string(static_cast<int64_t>(silence(*first).count())) + " s in " +
                   of_.watch().stage() +
                   (others == 0 ? "" : ", nor have " + std::to_string(others) + " more"));
  }
  std::this_thread::sleep_for(sleep_);
  // The other side of a transfer may need many answers for one message.
  if (now - last_ > kAwake) sleep_ = std::min(sleep_ * 3 / 2, kLongestSleep);
}

std::unique_ptr<Communicator> SingleCommunicator::split(bool member) {
  if (!member) return nullptr;
  return std::make_unique<SingleCommunicator>(hosts()[0], watch());
}

namespace {

enum class Outcome : uint8_t { kDone, kFailed, kInterrupted, kLeft };

std::vector<std::byte> message(Outcome outcome, std::span<const std::byte> content) {
  ByteWriter out;
  out.put(static_cast<uint8_t>(outcome));
  out.put_bytes(content);
  return out.take();
}

std::vector<std::byte> failed(const std::string& text) {
  return message(Outcome::kFailed, std::as_bytes(std::span(text)));
}

/// Message to the other ranks.
std::vector<std::byte> outcome_of(const std::function<std::vector<std::byte>()>& body) {
  try {
    std::vector<std::byte> result;
    unless_file_changed([&] { result = body(); });
    return message(Outcome::kDone, result);
  } catch (const LostRank&) {
    throw;  // nobody can be told
  } catch (const RankLeft&) {
    return message(Outcome::kLeft, {});
  } catch (const Interrupted&) {
    return message(Outcome::kInterrupted, {});
  } catch (const Error& error) {
    return failed(error.message());
  } catch (const std::bad_alloc&) {
    return failed("out of memory");
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}

Outcome outcome(const std::vector<std::byte>& told) {
  if (told.empty() || told[0] > std::byte{static_cast<uint8_t>(Outcome::kLeft)})
    fail("a rank's answer has ", told.size(), " bytes and no known outcome");
  return static_cast<Outcome>(told[0]);
}

}  // namespace

std::vector<std::vector<std::byte>> agree(Communicator& ranks,
                                          const std::function<std::vector<std::byte>()>& body,
                                          const std::function<void()>& on_failure) {
  if (ranks.size() == 1) return {body()};
  const std::vector<std::byte> own = outcome_of(body);
  if (on_failure && outcome(own) != Outcome::kDone) on_failure();
  std::vector<std::vector<std::byte>> all = ranks.all_gather(own);
  const auto find = [&](Outcome wanted) {
    return std::ranges::find(all, wanted, outcome) - all.begin();
  };
  if (find(Outcome::kInterrupted) < std::ssize(all)) throw Interrupted();
  if (const auto rank = find(Outcome::kFailed); rank < std::ssize(all)) {
    const auto text = std::span(all[static_cast<size_t>(rank)]).subspan(1);
    throw SharedError(ranks.name_of(static_cast<int>(rank)) + ", " + ranks.watch().stage() + ": " +
                      std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  }
  if (find(Outcome::kLeft) < std::ssize(all)) throw SharedError(RankLeft().message());
  for (std::vector<std::byte>& told : all) told.erase(told.begin());
  return all;
}

void expect_same(Communicator& ranks, std::span<const std::byte> own, const std::string& what) {
  const auto all = ranks.all_gather(own);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw SharedError(ranks.name_of(static_cast<int>(rank)) + " sees " + what + " than " +
                        ranks.name_of(0));
}

}  // namespace kvcal
