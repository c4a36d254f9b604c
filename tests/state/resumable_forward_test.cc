// A run that ends anywhere and goes on gives what one that was left alone gives.
#include "state/resumable_forward.h"

#include <fstream>

#include "core/file.h"
#include "forward/divided_forward.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// Lets so many calls through, then stops the run as a signal does: within the call that comes
/// next.
class StoppingForward : public LayerForward {
 public:
  StoppingForward(std::unique_ptr<LayerForward> inner, int& calls_left)
      : inner_(std::move(inner)), calls_left_(calls_left) {}
  void request(const ObservationRequest& request) override { inner_->request(request); }
  LayerResult run(const LayerCall& call) override {
    LayerResult result = inner_->run(call);  // its hidden states have changed when the run ends
    if (calls_left_-- == 0) throw Interrupted();
    return result;
  }
  int64_t num_tokens() const override { return inner_->num_tokens(); }
  void show_hidden(HiddenSink* sink) override { inner_->show_hidden(sink); }
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override {
    inner_->restore_hidden(next_layer, source);
  }

 private:
  std::unique_ptr<LayerForward> inner_;
  int& calls_left_;
};

struct Run {
  /// place: below tests/fixtures/models, or of a fixture with a draft layer, which runs, too.
  explicit Run(const std::string& place)
      : fixture(model_fixture(place), "cpu", 2, config_with_draft), samples(fixture) {}

  std::unique_ptr<LayerForward> forward(size_t parts, bool is_restored) {
    while (more.size() + 1 < parts) more.push_back(make_backend("cpu", 1));
    std::vector<Backend*> backends{fixture.backend.get()};
    for (size_t i = 1; i < parts; ++i) backends.push_back(more[i - 1].get());
    return std::make_unique<DividedForward>(
        fixture.config, fixture.weights, backends, samples.spans(),
        LayerwiseOptions{.batch_tokens = 16, .is_restored = is_restored}, silent);
  }
  /// What is seen of passes through all layers; calls: how many are made before the run stops.
  std::string see(RunState& state, RunMode mode, const ObservationRequest& request, int& calls,
                  int passes = 1, size_t parts = 1) {
    std::string seen;
    for (int pass = 0; pass < passes; ++pass) {
      ResumableForward resumable(
          state, fixture.config, samples.lengths(),
          [&](bool is_restored) {
            restored += is_restored;
            return std::make_unique<StoppingForward>(forward(parts, is_restored), calls);
          },
          hashes);
      seen += run_layers(resumable, fixture.config, mode, request);
    }
    state.finish();
    return seen;
  }
  std::string see_alone(RunMode mode, const ObservationRequest& request) {
    return run_layers(*forward(1, false), fixture.config, mode, request);
  }

  SilentDiagnostics silent;
  ModelFixture fixture;
  FixtureSamples samples;
  StatePeers peers;
  std::vector<std::unique_ptr<Backend>> more;  ///< beside the fixture's
  WeightHashes* hashes = nullptr;
  int restored = 0;  ///< passes that began with hidden states of an earlier run
};

/// Of weights in a test's hands.
struct SomeHashes : WeightHashes {
  uint64_t of_model() override { return model; }
  uint64_t packed(int64_t layer) override { return stored(layer); }
  uint64_t stored(int64_t layer) override { return layer == changed ? 77 : 7; }

  uint64_t model = 1;
  int64_t changed = -1;
};

StateSettings settings(const fs::path& folder, bool resumes) {
  // However small the fixture, each layer is kept.
  return {.folder = folder, .fingerprint = {{"model", "m"}}, .resumes = resumes, .share = 1e9};
}

constexpr int kForever = 1 << 30;

}  // namespace

TEST_CASE("state: a run that stops after any call goes on to the same result") {
  const std::string name = GENERATE("llama", "jamba", "deepseek_v2", "glm_moe_dsa_sparse",
                                    "../drafts/glm4_moe", "../drafts/qwen3_5");
  const RunMode mode = GENERATE(RunMode::kQuantized, RunMode::kExact, RunMode::kExactInOnePass);
  const bool sees_all = GENERATE(false, true);
  const ObservationRequest request = sees_all ? kObserveAll : ObservationRequest{};
  INFO(name << ", mode " << static_cast<int>(mode) << ", all " << sees_all);
  Run run(name);
  const std::string expected = run.see_alone(mode, request);
  int calls = kForever;
  {
    const ScratchFolder scratch;
    RunState state(settings(scratch.path() / "s", false), run.peers, run.silent);
    CHECK((run.see(state, mode, request, calls) == expected));
  }
  const int all_calls = kForever - calls;
  REQUIRE(all_calls > 2);
  for (int stop = 0; stop < all_calls; ++stop) {
    INFO("stopped in call " << stop);
    const ScratchFolder scratch;
    const fs::path folder = scratch.path() / "s";
    calls = stop;
    {
      RunState state(settings(folder, false), run.peers, run.silent);
      CHECK_THROWS_AS(run.see(state, mode, request, calls), Interrupted);
    }
    const bool is_kept = fs::exists(folder / "state.json");
    calls = kForever;
    RunState state(settings(folder, true), run.peers, run.silent);
    CHECK(state.resumed().has_value() == is_kept);
    CHECK((run.see(state, mode, request, calls, 1, 2) == expected));
    CHECK(kForever - calls <= all_calls - (is_kept ? 1 : 0));
  }
  CHECK(run.restored > 0);
}

TEST_CASE("state: a run that stops again and again, one call further each time, comes to its end") {
  Run run("gemma3_text");
  const std::string expected = run.see_alone(RunMode::kQuantized, {});
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "s";
  std::string seen;
  int calls = 2, runs = 0;
  for (; seen.empty() && runs < 100; ++runs) {
    // Two calls a layer: each run gets past one more.
    calls = 2;
    RunState state(settings(folder, runs > 0), run.peers, run.silent);
    try {
      seen = run.see(state, RunMode::kQuantized, {}, calls);
    } catch (const Interrupted&) {
    }
  }
  CHECK((seen == expected));
  CHECK(runs > 2);
  CHECK(run.restored > 1);
}

TEST_CASE("state: passes that an earlier run finished are not made again") {
  Run run("qwen3");
  const std::string one = run.see_alone(RunMode::kExactInOnePass, kObserveAll);
  int calls = kForever;
  {
    const ScratchFolder scratch;
    RunState state(settings(scratch.path() / "s", false), run.peers, run.silent);
    CHECK((run.see(state, RunMode::kExactInOnePass, kObserveAll, calls, 3) == one + one + one));
  }
  const int calls_of_pass = (kForever - calls) / 3;
  for (int stop = 1; stop < 3 * calls_of_pass; ++stop) {
    INFO("stopped in call " << stop);
    const ScratchFolder scratch;
    calls = stop;
    {
      RunState state(settings(scratch.path() / "s", false), run.peers, run.silent);
      CHECK_THROWS_AS(run.see(state, RunMode::kExactInOnePass, kObserveAll, calls, 3), Interrupted);
    }
    calls = kForever;
    RunState state(settings(scratch.path() / "s", true), run.peers, run.silent);
    CHECK((run.see(state, RunMode::kExactInOnePass, kObserveAll, calls, 3) == one + one + one));
    const int done = stop / calls_of_pass * calls_of_pass;
    CHECK(kForever - calls <= 3 * calls_of_pass - done);
  }
}

TEST_CASE("state: what is whole makes no pass, and nothing is left at the end") {
  Run run("llama");
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "s";
  int calls = kForever;
  {
    RunState state(settings(folder, false), run.peers, run.silent);
    run.see(state, RunMode::kQuantized, {}, calls);
    state.settle();
    REQUIRE(state.last().has_value());
    CHECK(state.last()->place() == "after the forward pass");
  }
  calls = kForever;
  RunState state(settings(folder, true), run.peers, run.silent);
  CHECK((run.see(state, RunMode::kQuantized, {}, calls) == run.see_alone(RunMode::kQuantized, {})));
  CHECK(calls == kForever);
  state.remove();
  CHECK(!fs::exists(folder));
}

TEST_CASE("state: a run without a checkpoint leaves no folder") {
  Run run("llama");
  const ScratchFolder scratch;
  int calls = 0;
  {
    RunState state(settings(scratch.path() / "s", false), run.peers, run.silent);
    CHECK_THROWS_AS(run.see(state, RunMode::kQuantized, {}, calls), Interrupted);
  }
  CHECK(!fs::exists(scratch.path() / "s"));
}

TEST_CASE("state: one that takes more than its share is not kept, and costs nothing then") {
  Run run("llama");
  const ScratchFolder scratch;
  StateSettings frugal = settings(scratch.path() / "s", false);
  frugal.share = 0.0;  // a tenth of a second is always allowed: enough for some layers
  int calls = kForever;
  RunState state(frugal, run.peers, run.silent);
  CHECK((run.see(state, RunMode::kQuantized, {}, calls) == run.see_alone(RunMode::kQuantized, {})));
  state.settle();
  CHECK(state.cost_seconds() < 1.0);
}

TEST_CASE("state: damaged files are errors that name them") {
  Run run("llama");
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "s";
  int calls = 3;
  {
    RunState state(settings(folder, false), run.peers, run.silent);
    CHECK_THROWS_AS(run.see(state, RunMode::kQuantized, {}, calls), Interrupted);
  }
  const std::string state_json = read_text(folder / "state.json");
  const int slot = state_json.find("\"slot\": 1") != std::string::npos ? 1 : 0;
  const fs::path hidden = folder / ("hidden-" + std::to_string(slot)) / "rank-00000.bin";
  const auto resume = [&] {
    calls = kForever;
    RunState state(settings(folder, true), run.peers, run.silent);
    return run.see(state, RunMode::kQuantized, {}, calls);
  };
  const auto change = [](const fs::path& path, int64_t at, char to) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
    file.put(to);
  };

  SECTION("a changed row") {
    change(hidden, -3, 77);
    CHECK_THROWS_WITH(resume(),
                      Catch::Contains("are damaged") && Catch::Contains("rank-00000.bin"));
  }
  SECTION("a cut file") {
    fs::resize_file(hidden, fs::file_size(hidden) - 1);
    CHECK_THROWS_WITH(resume(), Catch::Contains("ends within the rows of sample"));
  }
  SECTION("a missing file") {
    fs::remove(hidden);
    CHECK_THROWS_WITH(resume(), Catch::Contains("rank-00000.bin: cannot open"));
  }
  SECTION("a journal that was changed") {
    change(folder / "journal.bin", 60, 77);
    CHECK_THROWS_WITH(resume(),
                      Catch::Contains("journal.bin") && Catch::Contains("the record is damaged"));
  }
  SECTION("a journal that was cut") {
    fs::resize_file(folder / "journal.bin", 40);
    CHECK_THROWS_WITH(resume(), Catch::Contains("40 bytes, expected at least"));
  }
  SECTION("hidden states with any flipped bit") {
    const std::string bytes = read_text(hidden);
    for (size_t at = 0; at < bytes.size(); at += at < 40 ? 1 : 11) {
      INFO("byte " << at);
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      write_file_atomically(hidden, flipped, true);
      CHECK_THROWS_AS(resume(), Error);
    }
    write_file_atomically(hidden, bytes, true);
  }
  SECTION("a journal with any flipped bit") {
    // What follows the checkpoint is not read.
    const std::string bytes = read_text(folder / "journal.bin")
                                  .substr(0, parse_json(state_json)["journal_bytes"].get<size_t>());
    for (size_t at = 0; at < bytes.size(); at += at < 100 ? 1 : 37) {
      INFO("byte " << at);
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      write_file_atomically(folder / "journal.bin", flipped, true);
      CHECK_THROWS_AS(resume(), Error);
    }
    write_file_atomically(folder / "journal.bin", bytes, true);
  }
  SECTION("files of another run that saw the same") {
    const ScratchFolder others;
    StateSettings other = settings(others.path() / "s", false);
    other.fingerprint = {{"model", "n"}};
    calls = 3;
    {
      RunState state(other, run.peers, run.silent);
      CHECK_THROWS_AS(run.see(state, RunMode::kQuantized, {}, calls), Interrupted);
    }
    const std::string file = GENERATE("journal", "hidden");
    const fs::path own = file == "journal" ? folder / "journal.bin" : hidden;
    fs::copy_file(others.path() / "s" / fs::relative(own, folder), own,
                  fs::copy_options::overwrite_existing);
    CHECK_THROWS_WITH(resume(), Catch::Contains("of another run"));
  }
  SECTION("nothing") {
    CHECK((resume() == run.see_alone(RunMode::kQuantized, {})));
  }
}

TEST_CASE("state: a run goes on from the same weights alone") {
  Run run("llama");
  SomeHashes hashes;
  run.hashes = &hashes;
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "s";
  int calls = 3;  // within layer 1
  {
    RunState state(settings(folder, false), run.peers, run.silent);
    CHECK_THROWS_AS(run.see(state, RunMode::kQuantized, {}, calls), Interrupted);
  }
  const auto resume = [&] {
    calls = kForever;
    RunState state(settings(folder, true), run.peers, run.silent);
    return run.see(state, RunMode::kQuantized, {}, calls);
  };
  hashes.changed = 0;
  CHECK_THROWS_WITH(resume(), Catch::Contains("the weights of layer 0 have changed"));
  CHECK_THROWS_AS(resume(), ChangedWeights);
  hashes.changed = -1;
  hashes.model = 2;
  CHECK_THROWS_WITH(resume(), Catch::Contains("the model's embedding, or another tensor"));
  hashes.model = 1;
  hashes.changed = 1;  // which the state has not seen: what follows is of the model as it is now
  CHECK((resume() == run.see_alone(RunMode::kQuantized, {})));
}
