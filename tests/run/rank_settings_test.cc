#include "run/rank_settings.h"

#include <cstring>
#include <fstream>
#include <thread>

#include "core/process.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

/// One of several ranks, the others of which always say what this one says.
class Echo : public Communicator {
 public:
  Echo(int rank, std::vector<std::string> hosts, Watch& watch)
      : Communicator(rank, std::move(hosts), watch) {}
  std::unique_ptr<Communicator> split(bool) override { return nullptr; }

 protected:
  void transfer(std::span<const std::span<const std::byte>> to,
                std::span<const std::span<std::byte>> from) override {
    for (size_t i = 0; i < to.size(); ++i)
      if (static_cast<int>(i) != rank() && !to[i].empty())
        std::memcpy(from[i].data(), to[i].data(), to[i].size());
  }
};

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

std::string list_of(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text;
}

/// A sysfs of a machine whose CPUs are online, with GPU i, "0000:0i:00.0", next to beside[i].
class Sysfs {
 public:
  Sysfs(const std::string& online, const std::vector<std::string>& beside) {
    write(root() / "devices/system/cpu/online", online);
    for (size_t i = 0; i < beside.size(); ++i)
      write(root() / "bus/pci/devices" / bus_id(static_cast<int>(i)) / "local_cpulist", beside[i]);
  }
  static std::string bus_id(int index) { return "0000:0" + std::to_string(index) + ":00.0"; }
  fs::path root() const { return folder_.path(); }
  MachineGpus gpus(int count) const {
    return {.name = "cuda", .count = [=] { return count; }, .bus_id = bus_id, .sysfs = root()};
  }

 private:
  test::ScratchFolder folder_;
};

struct Taken {
  DeviceOptions options;
  std::vector<int> cpus;
};
/// What devices_of_rank gives, in a thread of its own.
Taken taken(const DeviceOptions& options, int rank, const std::vector<std::string>& hosts,
            const MachineGpus& gpus) {
  Taken result;
  std::thread([&] {
    Watch watch;
    Echo ranks(rank, hosts, watch);
    result.options = devices_of_rank(options, ranks, gpus);
    result.cpus = allowed_cpus();
  }).join();
  return result;
}

}  // namespace

TEST_CASE("ranks of one machine take its GPUs in turn") {
  const Sysfs sysfs("0", {});
  const std::vector<std::string> hosts{"a", "a", "a", "b", "a"};
  const auto index = [&](int rank, int count, const std::string& device) {
    return taken({.device = device}, rank, hosts, sysfs.gpus(count)).options.default_index;
  };
  for (const std::string device : {"auto", "cuda"}) {
    CHECK(index(0, 2, device) == 0);
    CHECK(index(1, 2, device) == 1);
    CHECK(index(2, 2, device) == 0);
    CHECK(index(3, 2, device) == 0);  // the first of its machine
    CHECK(index(4, 8, device) == 3);
    CHECK(index(4, 1, device) == 0);  // a launcher shows each rank only its own
  }
  CHECK(index(4, 0, "auto") == 3);  // without any, the number does not matter
}

TEST_CASE("a rank with a GPU stays on the CPUs next to it") {
  const std::vector<int> all = allowed_cpus();
  if (all.size() < 2) return;  // there is nothing to choose
  const std::vector<int> first{all.front()}, last{all.back()};
  const Sysfs sysfs(list_of(all), {list_of(first), list_of(last)});
  const MachineGpus gpus = sysfs.gpus(2);
  const std::vector<std::string> together{"a", "a"};
  const Taken one = taken({}, 0, together, gpus), two = taken({}, 1, together, gpus);
  CHECK(one.cpus == first);
  CHECK(two.cpus == last);
  CHECK(one.options.threads == 1);  // of the CPU that is left
  CHECK(taken({.device = "cuda:1"}, 0, together, gpus).cpus == last);

  CHECK(taken({.device = "cpu"}, 0, together, gpus).cpus == all);
  CHECK(taken({.device = "cuda:0,1"}, 0, together, gpus).cpus == all);
  CHECK(taken({.device = "cuda:x"}, 0, together, gpus).cpus == all);
  CHECK(taken({}, 0, {"a", "b"}, gpus).cpus == all);  // alone on its machine
  CHECK(taken({}, 0, {"a"}, gpus).cpus == all);
}

TEST_CASE("CPUs next to a GPU are those that Linux names, where nobody has chosen others") {
  const Sysfs sysfs("0-7", {"0-3", "4-7", "0-7", "nonsense", "8-9", "6-9"});
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  const auto beside = [&](int gpu, const std::vector<int>& allowed) {
    return cpus_beside(sysfs.root(), Sysfs::bus_id(gpu), allowed);
  };
  CHECK(beside(0, all) == std::vector<int>{0, 1, 2, 3});
  CHECK(beside(1, all) == std::vector<int>{4, 5, 6, 7});
  CHECK(beside(5, all) == std::vector<int>{6, 7});
  for (const int gpu : {2, 3, 4, 9}) CHECK(beside(gpu, all).empty());  // 9: not described
  CHECK(beside(0, {0, 1, 2, 3, 4}).empty());
  CHECK(cpus_beside(sysfs.root(), "", all).empty());
  const test::ScratchFolder none;
  CHECK(cpus_beside(none.path(), Sysfs::bus_id(0), all).empty());
}
