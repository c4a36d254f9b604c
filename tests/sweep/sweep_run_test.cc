#include "sweep/sweep_run.h"

#include "core/folder.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::message_of;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;

namespace {

/// Keeps the course of a sweep as text.
class RecordedEvents : public SweepEvents {
 public:
  void planned(const Sweep&, const RemainingWork& one) override { remaining = one; }
  void started(size_t number, size_t num_tasks, const std::string& description) override {
    started_tasks.push_back(std::to_string(number) + "/" + std::to_string(num_tasks) + " " +
                            description);
  }
  void progressed(size_t number, const std::string& line) override {
    progress.push_back(std::to_string(number) + " " + line);
  }
  void said(const std::string& line) override { lines.push_back(line); }
  void failed(const std::string& why) override { failures.push_back(why); }
  void ended(double, double) override { ++num_ended; }

  RemainingWork remaining;
  std::vector<std::string> started_tasks, progress, lines, failures;
  size_t num_ended = 0;
};

/// A tiny model with a sweep of three cells: two need scales from text, one has scale 1.0.
struct SmallSweep {
  SmallSweep() {
    for (const char* name : {"config.json", "model.safetensors"})
      kvcal::copy_file(test::tests_folder() / "fixtures/models/llama" / name, model() / name);
    std::string records;
    for (const char* first : {"5", "6", "7"})
      records += std::string(R"({"input_ids": [)") + first + ", 9, 11, 13, 15, 17, 19, 21]}\n";
    write_file(scratch / "text.jsonl", records);
    write_file(scratch / "sweep.yaml",
               "name: small\nmodels: [model]\nrecipes:\n"
               "- max: {a_stage: {a_modifiers: {QuantizationModifier: {kv_cache_scheme: {num_bits: "
               "8, type: float, strategy: tensor, observer: static_minmax}}}}}\n"
               "calibration: {dataset: text.jsonl}\nevaluation: {dataset: text.jsonl}\n"
               "grid:\n- {num_samples: 2, kv_forward: [quantized, exact]}\n"
               "- {recipes: null, scales: unit}\n");
    settings = {.file = scratch / "sweep.yaml",
                .output = scratch / "out",
                .version = "1",
                .device = {.device = "reference", .threads = 1},
                .command = [this](const std::string& task, const DeviceOptions& device) {
                  return command(task, device);
                }};
  }

  fs::path model() {
    fs::create_directories(scratch / "model");
    return scratch / "model";
  }
  /// Does the task here; the process that follows has nothing left to do.
  Command command(const std::string& task, const DeviceOptions& device) {
    SweepSettings own = settings;
    own.device = device;
    SilentDiagnostics diagnostics;
    run_task(own, task, diagnostics);
    return {"/bin/sh",
            {"sh", "-c", "echo 'scoring:  50 %, 3 tokens/s, 0:02 left' >&2; echo done >&2"}};
  }
  SweepResult run() {
    events = {};
    SilentDiagnostics diagnostics;
    return run_sweep(settings, events, diagnostics);
  }

  ScratchFolder scratch;
  SweepSettings settings;
  RecordedEvents events;
};

const std::string kQuantized = "model/max/fp8_e4m3/quantized/2";
const std::string kExact = "model/max/fp8_e4m3/exact/2";
const std::string kUnit = "model/fp8_e4m3/unit";

std::vector<std::string> statuses(const Json& results) {
  std::vector<std::string> all;
  for (const Json& cell : results["cells"]) all.push_back(cell["status"].get<std::string>());
  return all;
}

}  // namespace

TEST_CASE("sweep run: every cell is measured, and a second run has nothing to do") {
  SmallSweep sweep;
  const SweepResult first = sweep.run();
  CHECK(first.failed.empty());
  CHECK(first.num_wanted == 3);
  CHECK(statuses(first.results->json) == std::vector<std::string>{"done", "done", "done"});
  CHECK(sweep.events.started_tasks ==
        std::vector<std::string>{"1/4 scales of model by max, fp8_e4m3, quantized, 2 samples",
                                 "2/4 statistics of model, 2 samples",
                                 "3/4 scales of model by max, fp8_e4m3, exact, 2 samples",
                                 "4/4 evaluate 3 cells, the first " + kQuantized});
  CHECK(sweep.events.num_ended == 4);
  REQUIRE(sweep.events.progress.size() == 4);
  for (size_t i = 0; i < 4; ++i)
    CHECK(sweep.events.progress[i].starts_with(std::to_string(i + 1) + " "));
  CHECK(sweep.events.lines == std::vector<std::string>(4, "done"));
  CHECK(sweep.events.remaining.num_tasks == 4);
  CHECK(sweep.events.remaining.num_there == 0);
  const SweepResult second = sweep.run();
  CHECK(second.results->json == first.results->json);
  CHECK(sweep.events.started_tasks.empty());
  CHECK(sweep.events.remaining.num_there == 3);
  SilentDiagnostics diagnostics;
  CHECK(collect_sweep(sweep.settings, diagnostics).results->json == first.results->json);
}

TEST_CASE("sweep run: cells done one by one make the table of a whole run") {
  SmallSweep sweep, whole;
  for (const std::string& id : {kUnit, kExact, kQuantized}) {
    sweep.settings.cells = {id};
    const SweepResult part = sweep.run();
    CHECK_FALSE(part.results.has_value());
    CHECK(part.num_wanted == 1);
  }
  CHECK_FALSE(is_there(fs::path(sweep.settings.output) / "results.json"));
  SilentDiagnostics diagnostics;
  sweep.settings.cells.clear();
  CHECK(collect_sweep(sweep.settings, diagnostics).results->json["cells"] ==
        whole.run().results->json["cells"]);
  sweep.settings.cells = {"model/fp8_e4m3/unti"};
  CHECK(test::contains(message_of([&] { sweep.run(); }), "--cell: the sweep has no cell"));
}

TEST_CASE("sweep run: a task that fails takes its cells along, the others go on") {
  SmallSweep sweep;
  sweep.settings.command = [&](const std::string& task, const DeviceOptions& device) -> Command {
    if (task.starts_with("observe:"))
      return {"/bin/sh", {"sh", "-c", "echo 'error: no memory' >&2; exit 1"}};
    return sweep.command(task, device);
  };
  const SweepResult result = sweep.run();
  CHECK(result.failed == std::vector<std::string>{kExact});
  CHECK(statuses(result.results->json) == std::vector<std::string>{"done", "failed", "done"});
  CHECK(result.results->json["cells"][1]["error"] == "no memory");
  CHECK(sweep.events.failures == std::vector<std::string>{"no memory", kExact + ": no memory"});
}

TEST_CASE("sweep run: cells that fail together are tried one by one, a killed task is named") {
  SmallSweep sweep;
  sweep.settings.command = [&](const std::string& task, const DeviceOptions& device) -> Command {
    if (task.starts_with("evaluate:") && task.find(',') != std::string::npos)
      return {"/bin/sh", {"sh", "-c", "kill -9 $$"}};
    return sweep.command(task, device);
  };
  const SweepResult result = sweep.run();
  CHECK(result.failed.empty());
  CHECK(statuses(result.results->json) == std::vector<std::string>{"done", "done", "done"});
}

TEST_CASE("sweep run: a preview counts the work and writes nothing") {
  SmallSweep sweep;
  SilentDiagnostics diagnostics;
  const SweepPreview preview = preview_sweep(sweep.settings, diagnostics);
  CHECK_FALSE(is_there(sweep.settings.output));
  CHECK(preview.remaining.num_tasks == 4);
  CHECK(preview.remaining.num_wanted == 3);
  CHECK(preview.remaining.seconds > 0.0);
  CHECK(preview.remaining.memory_bytes > 0.0);
  const Json json = to_json(preview.sweep, preview.remaining);
  CHECK(json["cells"].size() == 3);
  CHECK(json["tasks"][2]["task"] == "evaluations");
  CHECK(json["tasks"][2]["tokens"] == 24 * 4);
}

TEST_CASE("sweep run: an output inside the model is refused, and one without results") {
  SmallSweep sweep;
  SilentDiagnostics diagnostics;
  sweep.settings.output = sweep.model() / "out";
  CHECK(message_of([&] { sweep.run(); }) != "no error");
  sweep.settings.output = sweep.scratch / "lost";
  CHECK(test::contains(message_of([&] { collect_sweep(sweep.settings, diagnostics); }),
                       ": no such folder; --collect makes tables of what runs have left"));
}
