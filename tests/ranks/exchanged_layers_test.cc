#include "ranks/exchanged_layers.h"

#include <fstream>

#include "checkpoint/model_dir.h"
#include "core/file_in_use.h"
#include "forward/divided_forward.h"
#include "forward/support/forward_run.h"
#include "ranks/communicator.h"
#include "ranks/ranked_forward.h"
#include "ranks/support/thread_ranks.h"
#include "ranks/weights_mode.h"
#include "support/catch.h"
#include "support/pretending_backend.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;
using kvcal::test::RunMode;

namespace {

struct RankRun {
  std::string seen;
  uint64_t bytes_read = 0;
};

/// A rank's own view of a fixture, and the backends it runs on.
struct RankModel {
  RankModel(const fs::path& place, size_t devices, bool packs_beside)
      : fixture(place), samples(fixture) {
    for (size_t i = 0; i < devices; ++i) {
      owned.push_back(kBackends.at("cpu")({.num_threads = 1}));
      if (packs_beside)
        owned.back() = std::make_unique<test::PretendingBackend>(std::move(owned.back()));
      backends.push_back(owned.back().get());
    }
  }
  ModelFixture fixture;
  FixtureSamples samples;
  std::vector<std::unique_ptr<Backend>> owned;
  std::vector<Backend*> backends;
};

RankRun run_rank(RankModel& model, Communicator& ranks, WeightsMode mode) {
  const ModelFixture& fixture = model.fixture;
  const auto lengths = model.samples.lengths();
  const SampleAssignment assignment = assign_samples(lengths, {}, ranks.size());
  const auto& own = assignment.samples_of[static_cast<size_t>(ranks.rank())];
  std::vector<std::span<const TokenId>> spans;
  for (const size_t sample : own) spans.push_back(model.samples.spans()[sample]);
  const auto bytes =
      make_layer_bytes(mode, ranks, fixture.model_dir, fixture.weights, !own.empty());
  SilentDiagnostics silent;
  std::unique_ptr<LayerForward> local;
  if (!own.empty())
    local = std::make_unique<DividedForward>(
        fixture.config, fixture.weights, model.backends, spans,
        LayerwiseOptions{.batch_tokens = 20, .layer_bytes = bytes.get()}, silent);
  RankedForward forward(std::move(local), ranks, assignment, lengths, bytes.get());
  RankRun run{
      .seen = test::run_layers(forward, fixture.config, RunMode::kQuantized, test::kObserveAll)};
  if (bytes) run.bytes_read = bytes->bytes_read();
  return run;
}

std::string run_alone(const fs::path& place) {
  RankModel model(place, 1, false);
  SilentDiagnostics silent;
  LayerwiseForward forward(model.fixture.config, model.fixture.weights, *model.backends[0],
                           model.samples.spans(), {.batch_tokens = 20}, silent);
  return test::run_layers(forward, model.fixture.config, RunMode::kQuantized, test::kObserveAll);
}

/// A copy of a fixture whose weights' file has another byte at offset from its end.
void copy_changed(const fs::path& to, const std::string& name, int64_t from_end) {
  fs::copy(test::model_fixture(name), to);
  const fs::path file = to / "model.safetensors";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-from_end, std::ios::end);
  const int was = stream.get();
  stream.seekp(-from_end, std::ios::end);
  stream.put(static_cast<char>(was ^ 1));
}

}  // namespace

TEST_CASE("exchanged layers give the bytes of one process, and are read once by all together") {
  for (const std::string name : {"llama", "mixtral", "nemotron_h", "deepseek_v3"}) {
    INFO(name);
    const std::string one = run_alone(name);
    const ModelFixture fixture(name);
    uint64_t whole = 0;
    for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
      for (const FileExtent& part : layer_extents(fixture.model_dir, fixture.weights, layer))
        whole += part.end - part.begin;
    for (const int count : {1, 2, 3, 8})
      for (const size_t devices : {size_t{1}, size_t{2}})
        for (const bool packs_beside : {false, true}) {
          INFO(count << " ranks of " << devices << " devices");
          std::vector<RankRun> runs(static_cast<size_t>(count));
          test::run_ranks(count, [&](Communicator& ranks) {
            RankModel model(name, devices, packs_beside);
            runs[static_cast<size_t>(ranks.rank())] =
                run_rank(model, ranks, WeightsMode::kExchange);
          });
          uint64_t all = 0, most = 0;
          for (const RankRun& run : runs) {
            const bool same = run.seen == one;
            CHECK(same);
            all += run.bytes_read;
            most = std::max(most, run.bytes_read);
          }
          // Files end within their last page.
          const uint64_t page = PageSubstitute::page_size();
          const auto readers = static_cast<uint64_t>(std::min(count, 6));
          const auto layers = static_cast<uint64_t>(fixture.config.num_hidden_layers);
          CHECK(all <= whole);
          CHECK(all + layers * page >= whole);
          CHECK(most <= whole / readers + layers * page);
        }
  }
}

TEST_CASE("layers that each rank reads give the same bytes and the same hashes") {
  const std::string one = run_alone("llama");
  std::vector<RankRun> runs(3);
  test::run_ranks(3, [&](Communicator& ranks) {
    RankModel model("llama", 1, true);
    runs[static_cast<size_t>(ranks.rank())] = run_rank(model, ranks, WeightsMode::kLocal);
  });
  for (const RankRun& run : runs) {
    const bool same = run.seen == one;
    CHECK(same);
    CHECK(run.bytes_read == runs[0].bytes_read);
    CHECK(run.bytes_read > 0);
  }
}

TEST_CASE("the mapped files are what they were when a layer is dropped") {
  test::run_ranks(2, [&](Communicator& ranks) {
    ModelFixture fixture("llama"), other("llama");
    const auto bytes =
        make_layer_bytes(WeightsMode::kExchange, ranks, fixture.model_dir, fixture.weights, true);
    for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
      const uint64_t expected = layer_hash(other.weights, layer);
      bytes->bring(layer);
      // Also after what packing releases.
      for (const auto& tensor : fixture.weights.tensors(layer))
        fixture.weights.drop(layer, tensor.role, 0);
      if (layer_hash(fixture.weights, layer) != expected) fail("another layer ", layer);
      if (bytes->hash(layer) != expected) fail("another hash of layer ", layer);
      bytes->drop(layer);
      if (layer_hash(fixture.weights, layer) != expected) fail("not restored: layer ", layer);
    }
    if (sampled_sha256(fixture.model_dir) != sampled_sha256(other.model_dir)) fail("another model");
  });
  SUCCEED();
}

TEST_CASE("a rank that fails is named, wherever the others wait for it") {
  // Late products fail while the other ranks exchange the next layer, early ones before.
  for (const bool packs_beside : {false, true})
    for (const int64_t products : {0, 3, 8, 12, 17}) {
      INFO("after " << products << " products, packs beside: " << packs_beside);
      Watch watch(std::chrono::minutes(10));
      const auto errors = test::run_ranks({"n1", "n1", "n2"}, watch, [&](Communicator& ranks) {
        RankModel model("llama", 1, packs_beside);
        test::FailingBackend failing(kBackends.at("cpu")({.num_threads = 1}), products);
        failing.packs_in_thread = packs_beside;
        if (ranks.rank() == 2) model.backends[0] = &failing;
        run_rank(model, ranks, WeightsMode::kExchange);
      });
      for (const auto& error : errors) {
        const std::string message = test::message_of(error);
        INFO(message);
        CHECK(message.starts_with("rank 2 on host n2, layer "));
        CHECK(message.ends_with(": the device is gone"));
      }
    }
}

TEST_CASE("a file that ends early on one rank ends all") {
  const test::ScratchFolder folder;
  fs::copy(test::model_fixture("llama"), folder / "short");
  Watch watch(std::chrono::minutes(10));
  const auto errors = test::run_ranks({"n1", "n2"}, watch, [&](Communicator& ranks) {
    RankModel model(ranks.rank() == 1 ? folder / "short" : test::model_fixture("llama"), 1, false);
    // What rank 1 is to read is no longer there, up to a page that both layers share.
    const auto extents = layer_extents(model.fixture.model_dir, model.fixture.weights, 1);
    if (ranks.rank() == 1)
      fs::resize_file(folder / "short" / "model.safetensors", extents.front().begin);
    run_rank(model, ranks, WeightsMode::kExchange);
  });
  for (const auto& error : errors) {
    INFO(test::message_of(error));
    CHECK(test::message_of(error).starts_with("rank 1 on host n2, layer "));
    CHECK(test::message_of(error).find(" bytes early") != std::string::npos);
  }
  CHECK_THROWS_WITH(throw_if_file_changed(), Catch::Contains("changed while it was in use"));
  forget_changed_files();
}

TEST_CASE("a rank that reads other bytes of a layer is named with its host") {
  const test::ScratchFolder folder;
  copy_changed(folder / "other", "llama", 10);  // of the last norm or layer
  Watch watch(std::chrono::minutes(10));
  const auto run = [&](bool compares_first) {
    return test::run_ranks({"n1", "n2"}, watch, [&](Communicator& ranks) {
      RankModel model(ranks.rank() == 1 ? folder / "other" : test::model_fixture("llama"), 1,
                      false);
      if (compares_first) expect_same_model(ranks, model.fixture.model_dir);
      run_rank(model, ranks, WeightsMode::kLocal);
    });
  };
  for (const auto& error : run(true)) {
    CHECK(test::message_of(error).starts_with("rank 1 on host n2 sees another checkpoint in "));
    CHECK(
        test::message_of(error).ends_with(" than rank 0 on host n1; expected the same files on "
                                          "every host"));
  }
}

TEST_CASE("a layer whose middle differs on one rank is found when it is packed") {
  const test::ScratchFolder folder;
  const ModelFixture fixture("llama");
  const auto& shard = fixture.model_dir.shards()[0];
  const auto tensors = fixture.weights.tensors(1);
  const auto offset = static_cast<int64_t>(shard.offset_of(tensors.back().view));
  copy_changed(folder / "other", "llama",
               static_cast<int64_t>(shard.file().bytes().size()) - offset);
  Watch watch(std::chrono::minutes(10));
  for (const auto& error : test::run_ranks({"n1", "n2", "n2"}, watch, [&](Communicator& ranks) {
         RankModel model(ranks.rank() == 2 ? folder / "other" : test::model_fixture("llama"), 1,
                         false);
         run_rank(model, ranks, WeightsMode::kLocal);
       }))
    CHECK(test::message_of(error) ==
          "rank 2 on host n2 sees other bytes of layer 1 than rank 0 on host n1; expected the same "
          "checkpoint on every host");
}

TEST_CASE("on one host weights are shared, on several the faster way is measured") {
  const ModelFixture fixture("llama");
  const auto chosen = [&](const std::vector<std::string>& hosts, std::optional<WeightsMode> wanted,
                          std::vector<std::exception_ptr>& errors) {
    std::vector<WeightsChoice> choices(hosts.size());
    Watch watch(std::chrono::minutes(10));
    errors = test::run_ranks(hosts, watch, [&](Communicator& ranks) {
      choices[static_cast<size_t>(ranks.rank())] =
          choose_weights_mode(ranks, fixture.model_dir, wanted);
    });
    return choices;
  };
  std::vector<std::exception_ptr> errors;
  CHECK(chosen({"a", "a"}, {}, errors)[1].mode == WeightsMode::kShared);
  const auto measured = chosen({"a", "b"}, {}, errors);
  CHECK(measured[0].mode == measured[1].mode);
  CHECK(measured[0].mode != WeightsMode::kShared);
  CHECK(measured[0].read_rate.value() > 0.0);
  CHECK(measured[0].exchange_rate == measured[1].exchange_rate);
  CHECK(chosen({"a", "b"}, WeightsMode::kLocal, errors)[0].mode == WeightsMode::kLocal);
  chosen({"a", "b"}, WeightsMode::kShared, errors);
  for (const auto& error : errors)
    CHECK(test::message_of(error) ==
          "the ranks are on 2 hosts, whose memory is not shared; expected one host, or the weights "
          "exchanged or local");
}
