#include "ranks/agreement.h"

#include <algorithm>
#include <new>
#include <string>

#include "core/byte_stream.h"
#include "core/file_in_use.h"

namespace kvcal {
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
