#include "forward/hidden_states.h"

#include <algorithm>

#include "forward/memory_plan.h"
#include "forward/support/forward_run.h"
#include "kernels/backends.h"
#include "support/catch.h"
#include "support/pretending_backend.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using Access = HiddenStates::Access;

namespace {

/// Writes, changes twice and reads; what each batch held in the end.
std::vector<std::vector<float>> end_of(Backend& backend, const std::vector<int64_t>& batch_tokens,
                                       const HiddenRoom& room) {
  constexpr int64_t kWidth = 5;
  HiddenStates hidden(backend, kWidth, batch_tokens, room);
  const auto size = [&](size_t batch) { return batch_tokens[batch] * kWidth; };
  hidden.walk(Access::kWrite, [&](size_t batch, float* rows) {
    std::vector<float> values(static_cast<size_t>(size(batch)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(100 * batch + i);
    backend.copy_in(std::as_bytes(std::span(values)), reinterpret_cast<std::byte*>(rows));
  });
  for (int change = 0; change < 2; ++change) {
    hidden.walk(Access::kUpdate, [&](size_t batch, float* rows) {
      backend.add({.x = rows, .multiplier = 1.0f, .count = size(batch), .out = rows});
    });
    hidden.walk(Access::kRead, [](size_t, float*) {});
  }
  std::vector<std::vector<float>> result;
  hidden.walk(Access::kRead, [&](size_t batch, float* rows) {
    CHECK(batch == result.size());
    auto& values = result.emplace_back(static_cast<size_t>(size(batch)));
    backend.copy_out(reinterpret_cast<const std::byte*>(rows),
                     std::as_writable_bytes(std::span(values)));
  });
  return result;
}

std::unique_ptr<Backend> host() {
  return kBackends.at("reference")({.num_threads = 1});
}

}  // namespace

TEST_CASE("hidden states are the same wherever they lie") {
  const test::ScratchFolder scratch;
  for (const std::vector<int64_t>& batches :
       std::vector<std::vector<int64_t>>{{7}, {3, 8}, {4, 4, 4}, {1, 9, 2, 6}, {5, 1, 1, 1, 7}}) {
    INFO(batches.size() << " batches");
    const auto expected = end_of(*host(), batches, {});
    REQUIRE(expected.size() == batches.size());
    CHECK(expected.back().at(1) == 4.0f * static_cast<float>(100 * (batches.size() - 1) + 1));
    CHECK(end_of(*host(), batches, {.bytes = 0, .scratch_folder = scratch.path()}) == expected);
    test::PretendingBackend roomy(host()), narrow(host());
    CHECK(end_of(roomy, batches, {}) == expected);
    CHECK(roomy.counts["fetch"] == 0);
    CHECK(end_of(narrow, batches, {.bytes = 10}) == expected);
    // Two batches fit the buffers that the others would pass through.
    CHECK((narrow.counts["fetch"] > 0) == (batches.size() > 2));
    CHECK((narrow.counts["allocate_pinned"] == 1) == (batches.size() > 2));
    CHECK(narrow.peak <= roomy.peak);
  }
}

TEST_CASE("a batch is fetched while the one before it computes") {
  test::PretendingBackend backend(host());
  HiddenStates hidden(backend, 4, {2, 2, 2, 2}, {.bytes = 0});
  CHECK_FALSE(hidden.are_in_backend());
  hidden.walk(Access::kWrite, [&](size_t, float* rows) {
    backend.fill_zero(reinterpret_cast<std::byte*>(rows), 32);
  });
  backend.calls.clear();
  hidden.walk(Access::kUpdate,
              [&](size_t, float* rows) { backend.add({.x = rows, .count = 8, .out = rows}); });
  const std::vector<std::string> batch{"fetch", "add", "write_back"};
  std::vector<std::string> expected;
  for (int i = 0; i < 4; ++i) expected.insert(expected.end(), batch.begin(), batch.end());
  CHECK(backend.calls == expected);
}

namespace {

std::unique_ptr<Backend> cpu() {
  return kBackends.at("cpu")({.num_threads = 1});
}

}  // namespace

TEST_CASE("a forward pass sees the same bytes wherever its hidden states lie, in any fixture") {
  const test::ScratchFolder scratch;
  for (const std::string& name : test::model_fixture_names()) {
    INFO(name);
    const auto run = [&](Backend* backend, std::optional<uint64_t> limit) {
      test::ModelFixture fixture(name);
      const test::FixtureSamples samples(fixture);
      SilentDiagnostics silent;
      LayerwiseForward forward(
          fixture.config, fixture.weights, backend ? *backend : *fixture.backend, samples.spans(),
          {.batch_tokens = 1, .memory_limit = limit, .scratch_folder = scratch.path()}, silent);
      return test::run_layers(forward, fixture.config, test::RunMode::kQuantized);
    };
    const test::ModelFixture fixture(name);
    const std::string expected = run(nullptr, {});
    const std::vector<int64_t> lengths = test::FixtureSamples(fixture).lengths();
    const auto least = [&](const Backend& backend) {
      return memory_needs(fixture.config, fixture.weights, backend, {}, lengths)
          .with_batch(std::ranges::max(lengths));
    };
    const bool same_in_file = run(nullptr, least(*fixture.backend)) == expected;
    CHECK(same_in_file);
    test::PretendingBackend by_limit(cpu()), by_memory(cpu());
    const uint64_t tight = least(by_limit);
    const bool same_pinned = run(&by_limit, tight) == expected;
    CHECK(same_pinned);
    CHECK(by_limit.counts["fetch"] > 0);
    by_memory.memory = tight + tight / 15 + 1;
    const bool same_when_full = run(&by_memory, {}) == expected;
    CHECK(same_when_full);
    CHECK(by_memory.counts["fetch"] > 0);
  }
}
