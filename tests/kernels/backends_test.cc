#include "support/every_backend.h"
#include "support/scoped_variable.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

TEST_CASE("backends: the table holds cpu, reference and the build's GPU, and refuses others") {
  std::vector<std::string> expected{"cpu", "reference"};
  if (!gpu_device_name().empty()) expected.emplace_back(gpu_device_name());
  std::vector<std::string> names = kBackends.names();
  std::ranges::sort(names);
  std::ranges::sort(expected);
  CHECK(names == expected);
  for (const auto& [name, make] : kBackends.rows())
    if (name != gpu_device_name() || test::has_gpu())
      CHECK(make({.num_threads = 1})->name() == name);
    else
      CHECK_THROWS_AS(make({}), Error);
  CHECK_THROWS_AS(kBackends.at("cpuu"), Error);
}

TEST_CASE("backends: tests may be kept to devices, and say where there is none") {
  const test::ScopedVariable only("KVCAL_TEST_BACKENDS", "gpu");
  std::vector<std::string> devices;
#ifdef KVCAL_TEST_SIMULATED_GPU
  devices.emplace_back("simulated");
#endif
  if (test::has_gpu()) devices.emplace_back(gpu_device_name());
  if (devices.empty())
    CHECK(test::message_of(test::backend_names) ==
          "KVCAL_TEST_BACKENDS=gpu, and there is no device");
  else
    CHECK(test::backend_names() == devices);
  only.set("cuda");
  CHECK(test::message_of(test::backend_names) ==
        "KVCAL_TEST_BACKENDS is 'cuda', expected gpu, or no such variable");
}

TEST_CASE("backends: the description tells what computes, with how many threads") {
  const std::string one = test::make_backend("cpu", 1)->description();
  CHECK(one.rfind("cpu (", 0) == 0);
  CHECK(one.find("1 thread)") != std::string::npos);
  CHECK(test::make_backend("cpu", 3)->description().find("3 threads)") != std::string::npos);
}

TEST_CASE("backends: memory is aligned, copies arrive, zeros are zeros") {
  test::for_every_backend([](Backend& backend) {
    // Of more bytes than a GPU's copies take at a time.
    for (const size_t size : {size_t{100001}, size_t{3000001}}) {
      const Buffer buffer = backend.allocate(size);
      CHECK(buffer.size() == size);
      CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
      std::vector<std::byte> sent(size), back(size);
      for (size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7 % 251);
      backend.copy_in(sent, buffer.data());
      backend.copy_out(buffer.data(), back);
      CHECK(back == sent);
      backend.fill_zero(buffer.data(), buffer.size());
      backend.copy_out(buffer.data(), back);
      CHECK(back == std::vector<std::byte>(size));
    }
    CHECK(backend.allocate(0).size() == 0);
    CHECK_THROWS_AS(backend.allocate(size_t{1} << 60), Error);
  });
}

TEST_CASE("backends: what travels to and from pinned memory arrives, in order") {
  test::for_every_backend([](Backend& backend) {
    constexpr size_t kSize = 70001;
    const test::OnBackend<float> hidden(backend, std::vector<float>(kSize, 1.0f)),
        ones(backend, std::vector<float>(kSize, 1.0f)), back(backend, std::vector<float>(kSize));
    const Buffer pinned = backend.allocate_pinned(kSize * sizeof(float));
    const auto bytes = [](const test::OnBackend<float>& memory) {
      return std::span(reinterpret_cast<std::byte*>(memory.data()), kSize * sizeof(float));
    };
    backend.add({.x = ones.data(), .count = kSize, .out = hidden.data()});
    backend.write_back(bytes(hidden), pinned.data());  // of what add was asked for before
    backend.fetch(pinned.data(), bytes(back));
    backend.await_fetches();
    backend.add({.x = ones.data(), .count = kSize, .out = back.data()});
    CHECK(back.values() == std::vector<float>(kSize, 3.0f));
  });
}

TEST_CASE("backends: the preferred type is one that is supported") {
  test::for_every_backend([](Backend& backend) {
    CHECK(backend.supports(backend.preferred_compute_type()));
    CHECK(backend.supports(ComputeType::kFloat32));
  });
}

}  // namespace
}  // namespace kvcal
