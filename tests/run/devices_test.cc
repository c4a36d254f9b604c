#include "run/devices.h"

#include "kernels/backends.h"
#include "support/catch.h"
#include "support/pretending_backend.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

/// Everything that was told, in order.
class Told : public Diagnostics {
 public:
  void warn(const std::string& message) override { lines.push_back("warning: " + message); }
  void inform(const std::string& message) override { lines.push_back(message); }
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {}
  std::vector<std::string> lines;
};

}  // namespace

TEST_CASE("devices: auto takes a GPU that can be used, and else says why it takes the CPU") {
  CHECK(automatic_device("cuda", "").name == "cuda");
  CHECK(automatic_device("cuda", "").note.empty());
  const AutomaticDevice old = automatic_device("cuda", "its chip sm_75 is too old");
  CHECK(old.name == "cpu");
  CHECK(old.note == "--device auto takes the CPU: its chip sm_75 is too old");
  CHECK(automatic_device("", "built without GPUs").name == "cpu");
  CHECK(automatic_device("", "built without GPUs").note.empty());
}

TEST_CASE("devices: a GPU starts early where the options may take it") {
  const auto started = [](const std::string& device, std::string_view gpu) {
    return gpu_to_start({.device = device, .default_index = 3}, gpu);
  };
  CHECK(started("auto", "cuda") == 3);
  CHECK(started("cuda", "cuda") == 3);
  CHECK(started("CUDA:2,1", "cuda") == 2);
  CHECK_FALSE(started("cpu", "cuda"));
  CHECK_FALSE(started("auto", ""));
  CHECK(test::message_of([&] { started("cuda:x", "cuda"); }) ==
        "--device: 'cuda:x' is no list of devices, expected one like cuda:0,1");
  CHECK(
      test::message_of([&] { started("cpx", ""); }).starts_with("--device: unknown device 'cpx'"));
  const GpuStart none({.device = "cpu"});
}

TEST_CASE("devices: a build without GPUs says nothing of them, and knows why") {
  if (!gpu_device_name().empty()) return;
  Told told;
  CHECK(open_backend({}, told)->name() == "cpu");
  CHECK(told.lines.empty());
  CHECK(gpu_problem(0) == "this kvcal was built without GPUs");
}

TEST_CASE("devices: what slows a device is told once, and what ran stands behind its name") {
  std::vector<std::unique_ptr<Backend>> backends;
  for (int i = 0; i < 2; ++i) {
    auto device = std::make_unique<test::PretendingBackend>(kBackends.at("reference")({}));
    device->warnings = {"no library", "small memory of device " + std::to_string(i)};
    device->used = "attention in float32";
    backends.push_back(std::move(device));
  }
  Told told;
  tell_warnings(borrowed(backends), told);
  CHECK(told.lines == std::vector<std::string>{"warning: no library",
                                               "warning: small memory of device 0",
                                               "warning: small memory of device 1"});
  tell_warnings(borrowed(backends), told);
  CHECK(told.lines.size() == 3);
  CHECK(description_of(backends) == "2 x " + backends[0]->description() + ", attention in float32");
}
