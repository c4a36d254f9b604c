#include "ranks/ranked_forward.h"

#include "forward/divided_forward.h"
#include "forward/support/forward_run.h"
#include "ranks/communicator.h"
#include "ranks/support/thread_ranks.h"
#include "support/catch.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;
using kvcal::test::RunMode;

namespace {

std::unique_ptr<Backend> one_thread(const std::string& name = "cpu") {
  return kBackends.at(name)({.num_threads = 1});
}

/// This rank's samples of a fixture, on the backends given.
std::unique_ptr<LayerForward> local_forward(const ModelFixture& fixture,
                                            const FixtureSamples& samples,
                                            std::span<const size_t> own,
                                            std::span<Backend* const> backends,
                                            Diagnostics& diagnostics) {
  if (own.empty()) return nullptr;
  std::vector<std::span<const TokenId>> spans;
  for (const size_t sample : own) spans.push_back(samples.spans()[sample]);
  return std::make_unique<DividedForward>(fixture.config, fixture.weights, backends, spans,
                                          LayerwiseOptions{.batch_tokens = 20}, diagnostics);
}

std::string run_alone(const std::string& name, RunMode mode, const ObservationRequest& request) {
  ModelFixture fixture(name);
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  const auto backend = one_thread();
  LayerwiseForward forward(fixture.config, fixture.weights, *backend, samples.spans(),
                           {.batch_tokens = 20}, silent);
  return test::run_layers(forward, fixture.config, mode, request);
}

/// What each rank sees of all samples.
std::vector<std::string> run_ranked(const std::string& name, int count, RunMode mode,
                                    const ObservationRequest& request, size_t backends_each = 1) {
  std::vector<std::string> seen(static_cast<size_t>(count));
  test::run_ranks(count, [&](Communicator& ranks) {
    ModelFixture fixture(name);
    const FixtureSamples samples(fixture);
    const SampleAssignment assignment = assign_samples(
        samples.lengths(), sample_work(fixture.config, fixture.weights), ranks.size());
    const auto rank = static_cast<size_t>(ranks.rank());
    std::vector<std::unique_ptr<Backend>> owned;
    std::vector<Backend*> backends;
    for (size_t i = 0; i < backends_each; ++i) {
      owned.push_back(one_thread());
      backends.push_back(owned.back().get());
    }
    SilentDiagnostics silent;
    RankedForward forward(
        local_forward(fixture, samples, assignment.samples_of[rank], backends, silent), ranks,
        assignment, samples.lengths());
    seen[rank] = test::run_layers(forward, fixture.config, mode, request);
  });
  return seen;
}

class LastProgress : public Diagnostics {
 public:
  void warn(const std::string& message) override { warning = message; }
  void inform(const std::string& lines) override { notes += lines; }
  void progress(std::string_view, int64_t now, int64_t all, std::string_view) override {
    done = now;
    total = all;
    ++calls;
  }
  std::string warning, notes;
  int64_t done = 0, total = 0, calls = 0;
};

}  // namespace

TEST_CASE("any number of ranks sees the bytes that one process sees") {
  ObservationRequest amax{.linears = LinearDetail::kAmax}, all_experts = test::kObserveAll;
  all_experts.all_experts = true;
  // Dense; experts; a latent cache; windows; hybrids.
  for (const std::string name : {"llama", "mixtral", "deepseek_v3", "gemma2", "nemotron_h"})
    for (const auto& [mode, request] :
         {std::pair{RunMode::kQuantized, test::kObserveAll},
          {RunMode::kExact, amax},
          {RunMode::kExactInOnePass, ObservationRequest{}},
          // Most ranks compare none of their samples.
          {RunMode::kExact, ObservationRequest{.compared_samples = 1}},
          {RunMode::kExactInOnePass, all_experts}}) {
      INFO(name);
      const std::string one = run_alone(name, mode, request);
      CHECK(one.size() > 1000);
      for (const int count : {1, 2, 3, 8}) {  // 8: more than there are samples
        INFO(count << " ranks");
        for (const std::string& seen : run_ranked(name, count, mode, request)) {
          const bool same = seen == one;
          CHECK(same);
        }
      }
    }
}

TEST_CASE("ranks with several devices each see the same bytes") {
  const std::string one = run_alone("mixtral", RunMode::kQuantized, test::kObserveAll);
  for (const std::string& seen :
       run_ranked("mixtral", 2, RunMode::kQuantized, test::kObserveAll, 2)) {
    const bool same = seen == one;
    CHECK(same);
  }
}

TEST_CASE("an error on one rank ends the pass on all with its rank, host and layer") {
  for (const int64_t products : {int64_t{0}, int64_t{7}}) {
    Watch watch(std::chrono::minutes(10));
    const auto errors = test::run_ranks({"n1", "n1", "n2"}, watch, [&](Communicator& ranks) {
      ModelFixture fixture("llama");
      const FixtureSamples samples(fixture);
      const SampleAssignment assignment = assign_samples(samples.lengths(), {}, ranks.size());
      std::unique_ptr<Backend> backend = one_thread();
      if (ranks.rank() == 2)
        backend = std::make_unique<test::FailingBackend>(std::move(backend), products);
      Backend* const backends[] = {backend.get()};
      SilentDiagnostics silent;
      RankedForward forward(
          local_forward(fixture, samples, assignment.samples_of[static_cast<size_t>(ranks.rank())],
                        backends, silent),
          ranks, assignment, samples.lengths());
      test::run_layers(forward, fixture.config, RunMode::kQuantized);
    });
    for (const auto& error : errors) {
      CHECK_THROWS_AS(std::rethrow_exception(error), SharedError);
      CHECK(test::message_of(error) == "rank 2 on host n2, layer 0: the device is gone");
    }
  }
}

TEST_CASE("all ranks count all tokens, and know whose a sample is") {
  test::run_ranks(3, [&](Communicator& ranks) {
    ModelFixture fixture("llama");
    const FixtureSamples samples(fixture);
    const SampleAssignment assignment = assign_samples(samples.lengths(), {}, ranks.size());
    const auto backend = one_thread();
    Backend* const backends[] = {backend.get()};
    SilentDiagnostics silent;
    const RankedForward forward(
        local_forward(fixture, samples, assignment.samples_of[static_cast<size_t>(ranks.rank())],
                      backends, silent),
        ranks, assignment, samples.lengths());
    const auto lengths = samples.lengths();
    if (forward.num_tokens() != std::accumulate(lengths.begin(), lengths.end(), int64_t{0}))
      fail("tokens");
  });
  SUCCEED();
}

TEST_CASE("hidden states go by the numbers of all samples") {
  struct Sink : HiddenSink {
    explicit Sink(std::vector<std::vector<float>>& all) : rows(all) {}
    void put(int64_t sample, std::span<const float> shown, std::shared_ptr<const void>) override {
      rows.at(static_cast<size_t>(sample)).assign(shown.begin(), shown.end());
    }
    void release(int64_t) override {}
    std::vector<std::vector<float>>& rows;
  };
  const auto shown = [](int count) {
    std::vector<std::vector<float>> rows(6);
    test::run_ranks(count, [&](Communicator& ranks) {
      ModelFixture fixture("llama");
      const FixtureSamples samples(fixture);
      const SampleAssignment assignment = assign_samples(samples.lengths(), {}, ranks.size());
      const auto backend = one_thread();
      Backend* const backends[] = {backend.get()};
      SilentDiagnostics silent;
      Sink sink(rows);
      RankedForward forward(
          local_forward(fixture, samples, assignment.samples_of[static_cast<size_t>(ranks.rank())],
                        backends, silent),
          ranks, assignment, samples.lengths());
      forward.show_hidden(&sink);
      forward.observe_and_advance_exact(0);
      forward.show_hidden(nullptr);
    });
    return rows;
  };
  const auto one = shown(1);
  CHECK(one.at(5).size() > 0);
  CHECK(shown(2) == one);
  CHECK(shown(7) == one);
}

TEST_CASE("rank 0 tells its progress as that of all, the others tell their warnings by name") {
  test::run_ranks(2, [&](Communicator& ranks) {
    LastProgress told;
    RankDiagnostics diagnostics(told, ranks, 1000);
    diagnostics.warn("slow disk");
    diagnostics.note("a fact of all");
    diagnostics.progress("calibrating", 100, 300, "tokens");
    const int64_t half = told.done;
    diagnostics.progress("calibrating", 300, 300, "tokens");
    const bool is_first = ranks.rank() == 0;
    if (told.calls != (is_first ? 2 : 0) || (is_first && (half != 333 || told.done != 1000)))
      fail("progress is ", half, " then ", told.done);
    if (told.notes != (is_first ? "note: a fact of all" : "")) fail(told.notes);
    if (told.warning != ranks.name_of(ranks.rank()) + ": slow disk") fail(told.warning);
  });
  SUCCEED();
}
