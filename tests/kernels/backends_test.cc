#include "support/backends.h"

namespace kvcal {
namespace {

TEST_CASE("backends: the table holds cpu and reference, and refuses others by name") {
  CHECK(kBackends.names() == std::vector<std::string>{"cpu", "reference"});
  for (const auto& [name, make] : kBackends.rows()) CHECK(make({.num_threads = 1})->name() == name);
  CHECK_THROWS_AS(kBackends.at("cpuu"), Error);
}

TEST_CASE("backends: the description tells what computes, with how many threads") {
  const std::string one = test::make_backend("cpu", 1)->description();
  CHECK(one.rfind("cpu (", 0) == 0);
  CHECK(one.find("1 thread)") != std::string::npos);
  CHECK(test::make_backend("cpu", 3)->description().find("3 threads)") != std::string::npos);
}

TEST_CASE("backends: memory is aligned, copies arrive, zeros are zeros") {
  for (const auto& [name, make] : kBackends.rows()) {
    const auto backend = make({.num_threads = 2});
    const Buffer buffer = backend->allocate(100001);
    CHECK(buffer.size() == 100001);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    const std::vector<std::byte> sent(100001, std::byte{7});
    std::vector<std::byte> back(100001);
    backend->copy_in(sent, buffer.data());
    backend->copy_out(buffer.data(), back);
    CHECK(back == sent);
    backend->fill_zero(buffer.data(), buffer.size());
    backend->copy_out(buffer.data(), back);
    CHECK(back == std::vector<std::byte>(100001));
    CHECK(backend->allocate(0).size() == 0);
    CHECK_THROWS_AS(backend->allocate(size_t{1} << 60), Error);
  }
}

TEST_CASE("backends: the preferred type is one that is supported") {
  for (const auto& [name, make] : kBackends.rows()) {
    const auto backend = make({.num_threads = 1});
    CHECK(backend->supports(backend->preferred_compute_type()));
    CHECK(backend->supports(ComputeType::kFloat32));
  }
}

}  // namespace
}  // namespace kvcal
