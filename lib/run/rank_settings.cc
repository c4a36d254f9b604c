#include "run/rank_settings.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/byte_stream.h"
#include "core/process.h"
#include "core/registry.h"
#include "core/text.h"
#include "kernels/backends.h"
#include "ranks/communicator.h"

namespace kvcal {
namespace {

const Registry<std::optional<WeightsMode>> kWeightsModes{"--weights",
                                                         {{"auto", std::nullopt},
                                                          {"shared", WeightsMode::kShared},
                                                          {"exchange", WeightsMode::kExchange},
                                                          {"local", WeightsMode::kLocal}}};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Number of ranks of this machine that may run on the same CPUs as this one. Collective.
int ranks_on_same_cpus(Communicator& ranks) {
  ByteWriter own;
  own.put_text(ranks.hosts().at(static_cast<size_t>(ranks.rank())));
  for (const int cpu : allowed_cpus()) own.put(cpu);
  const std::vector<std::byte> mine = own.take();
  const auto all = ranks.all_gather(mine);
  return static_cast<int>(std::ranges::count(all, mine));
}

/// As gpu_to_start; nothing for a wrong --device, which is told when devices are opened.
std::optional<int> gpu_of(const DeviceOptions& options, const MachineGpus& gpus) {
  try {
    return gpu_to_start(options, gpus.name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Chooses one of the GPUs where none is given by number, and the CPUs next to it.
void take_gpu(DeviceOptions& options, const Communicator& ranks, const MachineGpus& gpus) {
  if (!gpu_of(options, gpus)) return;
  if (const int count = gpus.count(); count > 0) options.default_index %= count;
  const std::string& host = ranks.hosts().at(static_cast<size_t>(ranks.rank()));
  const bool is_alone = std::ranges::count(ranks.hosts(), host) == 1;
  if (is_alone || options.device.find(',') != std::string::npos) return;
  const std::vector<int> beside =
      cpus_beside(gpus.sysfs, gpus.bus_id(*gpu_of(options, gpus)), allowed_cpus());
  if (!beside.empty()) allow_cpus(beside);
}

/// Empty where there is no such file.
std::vector<int> cpu_list_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_cpu_list(line);
}

}  // namespace

std::optional<WeightsMode> wanted_weights(const RankSettings& settings) {
  return kWeightsModes.at(settings.weights);
}

void together(Communicator& ranks, const std::function<void()>& body) {
  agree(ranks, [&] {
    body();
    return std::vector<std::byte>();
  });
}

MachineGpus machine_gpus() {
  return {.name = gpu_device_name(), .count = gpu_count, .bus_id = gpu_bus_id};
}

DeviceOptions devices_of_rank(DeviceOptions options, Communicator& ranks, const MachineGpus& gpus) {
  if (ranks.size() == 1) return options;
  options.default_index = ranks.local_rank();
  take_gpu(options, ranks, gpus);
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

void expect_same_output(Communicator& ranks, const std::string& output) {
  if (ranks.size() > 1) expect_same(ranks, bytes_of(output), "another --output");
}

RankedRun make_ranked_run(Communicator& ranks, const RankSettings& settings,
                          const ModelDir& model_dir, Diagnostics& diagnostics) {
  const WeightsChoice choice = choose_weights_mode(ranks, model_dir, wanted_weights(settings));
  if (ranks.size() > 1) {
    std::string line = counted(ranks.size(), "rank") + " on " +
                       counted(ranks.num_hosts(), "machine") + ", weights " +
                       std::string(name_of(choice.mode));
    if (choice.read_rate && choice.exchange_rate)
      line += " (measured: " + byte_text(*choice.read_rate) + "/s read by each, " +
              byte_text(*choice.exchange_rate) + "/s exchanged)";
    diagnostics.inform(line);
  }
  return {.ranks = &ranks, .mode = choice.mode};
}

std::vector<RankShare> gather_shares(Communicator& ranks, RankWork work, const RankWork& before) {
  if (ranks.size() == 1) return {};
  const RankWork now = process_work();
  work.storage_bytes = now.storage_bytes - before.storage_bytes;
  work.processor_seconds = now.processor_seconds - before.processor_seconds;
  work.peak_bytes = now.peak_bytes;
  std::vector<RankShare> shares;
  for (const RankWork& one : gather_work(ranks, work))
    shares.push_back({.host = ranks.hosts()[shares.size()], .work = one});
  return shares;
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

std::vector<int> cpus_beside(const std::filesystem::path& sysfs, const std::string& bus_id,
                             std::span<const int> allowed) {
  if (bus_id.empty() ||
      !std::ranges::equal(cpu_list_in(sysfs / "devices/system/cpu/online"), allowed))
    return {};
  std::vector<int> beside;
  std::ranges::set_intersection(cpu_list_in(sysfs / "bus/pci/devices" / bus_id / "local_cpulist"),
                                allowed, std::back_inserter(beside));
  if (beside.size() == allowed.size()) beside.clear();
  return beside;
}

}  // namespace kvcal
