#include "run/calibration_preview.h"

#include <algorithm>

#include "core/folder.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::KeptLines;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;

namespace {

CalibrateRequest request_of(const TextCheckpoint& files) {
  CalibrateRequest request;
  request.model = files.path();
  request.dataset = files.text();
  request.output.output = (files.folder / "out").string();
  request.device = test::reference_device();
  return request;
}

CalibrationPreview preview_of(const CalibrateRequest& request, int num_scored = 0) {
  SilentDiagnostics silent;
  return preview_calibration(request, num_scored, silent);
}

uint64_t tensor_bytes(const std::string& model) {
  const ModelDir dir(model);
  uint64_t bytes = 0;
  for (const std::string& name : dir.tensor_names()) bytes += dir.tensor(name).bytes.size();
  return bytes;
}

std::string line_of(const CalibrationPreview& preview, const std::string& label) {
  for (const auto& [name, text] : preview_lines(preview))
    if (name == label) return text;
  return "";
}

}  // namespace

TEST_CASE("preview: it counts what a run reads and writes, and writes nothing") {
  const TextCheckpoint files;
  const CalibrateRequest request = request_of(files);
  const auto before = paths_in(files.folder.path());
  const CalibrationPreview preview = preview_of(request);
  CHECK(paths_in(files.folder.path()) == before);
  CHECK(preview.num_samples == 2);
  CHECK(preview.num_tokens > 10);
  CHECK(preview.seconds > 0.0);
  CHECK(preview.memory_bytes > 0);
  CHECK(preview.output_bytes == tensor_bytes(request.model));
  CHECK(preview.state_bytes > 0);
  CHECK(preview.scratch_bytes == 0);
  CHECK(preview.free_bytes.value() > 0);
  CHECK(preview.disk == fs::path(files.folder.path()));
}

TEST_CASE("preview: no output need be named, and an overlay, scales and no state need no disk") {
  const TextCheckpoint files;
  CalibrateRequest request = request_of(files);
  request.output.output.clear();
  CHECK(preview_of(request).output_bytes == tensor_bytes(request.model));
  request.state.folder = "none";
  request.output.formats = {"scales-json"};
  CHECK(preview_of(request).disk_bytes() == 0);
  request.output.formats = {"compressed-tensors"};
  request.output.scales_only = true;
  CHECK(preview_of(request).disk_bytes() == 0);
}

TEST_CASE("preview: FP8 weights take a byte an element, and a recipe without data no time") {
  const TextCheckpoint files;
  CalibrateRequest request = request_of(files);
  request.recipe = "FP8_DYNAMIC";
  request.dataset.clear();
  const CalibrationPreview preview = preview_of(request);
  CHECK(preview.num_samples == 0);
  CHECK(preview.output_bytes < tensor_bytes(request.model));
  CHECK(preview.output_bytes > tensor_bytes(request.model) / 2);
  CHECK(line_of(preview, "samples") == "none: the recipe calibrates nothing");
}

TEST_CASE("preview: records are held out where the data set has too few for all") {
  const TextCheckpoint files;
  CalibrateRequest request = request_of(files);
  request.samples.max_seq_length = 8;
  const auto samples_with = [&](int64_t held_out, std::string* note = nullptr) {
    request.num_held_out = held_out;
    KeptLines told;
    const size_t samples = preview_calibration(request, 0, told).num_samples;
    if (note) *note = told.notes.empty() ? "" : told.notes.at(0);
    return samples;
  };
  std::string note;
  CHECK(samples_with(1, &note) == 1);
  CHECK(note ==
        "note: calibrating with 1 sample, leaving 1 of the data set's records to measure on");
  CHECK(samples_with(32) == 1);
  request.dataset.clear();
  const size_t all = samples_with(0, &note);
  CHECK(contains(note, "'calibration', " + std::to_string(all) + " samples"));
  CHECK(samples_with(32, &note) == all - 32);
  CHECK(
      contains(note, std::to_string(all - 32) + " samples, leaving 32 of the data set's records"));
  CHECK(samples_with(1000) == all / 2);
  request.samples.num_calibration_samples = 3;
  CHECK(samples_with(32) == 3);
}

TEST_CASE("preview: scoring adds its time, and hidden states past a limit go to the disk") {
  const TextCheckpoint files;
  CalibrateRequest request = request_of(files);
  request.score.num_sequences = 1'000'000'000;
  CHECK(preview_of(request, 3).seconds > 10 * preview_of(request).seconds);
  const uint64_t needed = preview_of(request).memory_bytes;
  request.memory_limit = "1";
  CHECK(contains(message_of([&] { preview_of(request); }), "the memory limit of 1 B "));
  request.memory_limit = std::to_string(2 * needed);
  const CalibrationPreview limited = preview_of(request);
  CHECK(limited.memory_available == 2 * needed);
  CHECK(contains(line_of(limited, "memory"), " of "));
}

TEST_CASE("preview: what a run would refuse is refused") {
  const TextCheckpoint files;
  CalibrateRequest request = request_of(files);
  fs::create_directory(request.output.output);
  CHECK(contains(message_of([&] { preview_of(request); }), "exists; pass --overwrite"));
  request.output.overwrite = true;
  CHECK(preview_of(request).num_samples == 2);
}

TEST_CASE("preview: too little room on the disk is said") {
  CalibrationPreview preview;
  preview.output_bytes = 100;
  preview.disk = "/data";
  preview.free_bytes = 99;
  CHECK(line_of(preview, "disk") == "output 100 B; 99 B are free at /data: too little");
  preview.free_bytes = 100;
  CHECK(line_of(preview, "disk") == "output 100 B; 100 B are free at /data");
}

TEST_CASE("preview: durations are seconds or minutes") {
  CHECK(duration_text(0.1) == "1 s");
  CHECK(duration_text(61) == "61 s");
  CHECK(duration_text(3909) == "65 min");
}

TEST_CASE("preview: a busy machine makes an estimate longer, and an idle one is not told of") {
  CHECK(estimate_text(110, 110) == "about 110 s");
  CHECK(estimate_text(110, 110.2) == "about 110 s");
  CHECK(estimate_text(110, 517) == "about 110 s, or 9 min while other programs are as busy as now");
  const TextCheckpoint files;
  const CalibrationPreview preview = preview_of(request_of(files));
  CHECK(preview.busy_seconds >= preview.seconds);
}
