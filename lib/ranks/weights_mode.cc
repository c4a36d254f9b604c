#include "ranks/weights_mode.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/posix_file.h"
#include "core/stopwatch.h"
#include "ranks/communicator.h"
#include "ranks/exchanged_layers.h"

namespace kvcal {
namespace {

constexpr size_t kMeasured = size_t{64} << 20, kChunk = size_t{4} << 20;
/// Required advantage of the exchange, which also costs processor time.
constexpr double kClearGain = 1.5;

double bytes_a_second(uint64_t bytes, const Stopwatch& watch) {
  return static_cast<double>(bytes) / std::max(1e-6, watch.seconds());
}

/// Reads chunks from all files, so that files partly in memory count accordingly.
uint64_t read_some(const ModelDir& model_dir, std::span<std::byte> buffer) {
  uint64_t all = 0, bytes_read = 0;
  for (const SafetensorsFile& shard : model_dir.shards()) all += shard.file().bytes().size();
  const uint64_t step = std::max<uint64_t>(kChunk, all / (kMeasured / kChunk));
  uint64_t next = 0, begin = 0;
  for (const SafetensorsFile& shard : model_dir.shards()) {
    const uint64_t size = shard.file().bytes().size();
    const Descriptor file(shard.file().path(), O_RDONLY);
    if (file.get() < 0) fail_errno(shard.file().path(), "cannot open");
    for (; next < begin + size; next += step)
      bytes_read += read_at(file.get(), buffer.first(kChunk), next - begin, shard.file().path());
    begin += size;
  }
  return bytes_read;
}

double exchange_rate(Communicator& ranks) {
  const auto count = static_cast<size_t>(ranks.size());
  const size_t chunk = std::min(kChunk, kMeasured / 4 / count);
  std::vector<std::byte> memory(chunk * count);
  std::vector<MemoryPart> parts;
  for (size_t rank = 0; rank < count; ++rank)
    parts.push_back({.begin = rank * chunk, .size = chunk});
  size_t exchanged = 0;
  const Stopwatch watch;
  for (; exchanged < kMeasured; exchanged += memory.size()) ranks.exchange(memory, parts);
  return bytes_a_second(exchanged, watch);
}

}  // namespace

std::string_view name_of(WeightsMode mode) {
  constexpr std::string_view kNames[] = {"shared", "exchange", "local"};
  return kNames[static_cast<size_t>(mode)];
}

WeightsChoice choose_weights_mode(Communicator& ranks, const ModelDir& model_dir,
                                  std::optional<WeightsMode> wanted) {
  if (wanted == WeightsMode::kShared && ranks.num_hosts() > 1)
    throw SharedError("the ranks are on " + std::to_string(ranks.num_hosts()) +
                      " hosts, whose memory is not shared; expected one host, or the weights "
                      "exchanged or local");
  if (wanted) return {.mode = *wanted};
  if (ranks.num_hosts() == 1) return {.mode = WeightsMode::kShared};
  ranks.barrier();  // all read at the same time, as they will
  double rate = 0.0;
  agree(ranks, [&] {
    std::vector<std::byte> buffer(kChunk);
    const Stopwatch watch;
    rate = bytes_a_second(read_some(model_dir, buffer), watch);
    return std::vector<std::byte>();
  });
  const double read = std::ranges::min(gather_values(ranks, rate));
  const double exchanged = std::ranges::min(gather_values(ranks, exchange_rate(ranks)));
  // One part is read while another is sent; the slower of both counts.
  const double together = std::min(read * ranks.size(), exchanged);
  return {.mode = together > kClearGain * read ? WeightsMode::kExchange : WeightsMode::kLocal,
          .read_rate = read,
          .exchange_rate = exchanged};
}

std::unique_ptr<RankLayerBytes> make_layer_bytes(WeightsMode mode, Communicator& ranks,
                                                 const ModelDir& model_dir, const Weights& weights,
                                                 bool has_samples) {
  if (mode != WeightsMode::kExchange)
    return has_samples ? std::make_unique<LocalLayers>(weights) : nullptr;
  auto readers = ranks.split(has_samples);
  if (!readers) return nullptr;
  return std::make_unique<ExchangedLayers>(std::move(readers), model_dir, weights);
}

void expect_same_model(Communicator& ranks, const ModelDir& model_dir) {
  if (ranks.size() == 1) return;
  const auto all = agree(ranks, [&] {
    const std::string hash = sampled_sha256(model_dir);
    const auto bytes = std::as_bytes(std::span(hash));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw SharedError(ranks.name_of(static_cast<int>(rank)) + " sees another checkpoint in '" +
                        model_dir.given_path().string() + "' than " + ranks.name_of(0) +
                        "; expected the same files on every host");
}

}  // namespace kvcal
