// Rewriting and calibrating in one run is the same as one after the other.
#include "run/smooth_checkpoint.h"

#include "checkpoint/model_dir.h"
#include "core/folder.h"
#include "core/interrupt.h"
#include "core/output.h"
#include "rewrite/rewritten_checkpoint.h"
#include "run/calibrate_checkpoint.h"
#include "run/calibration_preview.h"
#include "run/scored_scales.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using test::contains;
using test::message_of;

namespace {

/// The small Llama with a bias of K that an FP8 cache rounds coarsely.
struct Biased {
  explicit Biased(const std::string& outliers = "bias:norm=350,pairs=2") {
    ThreadPool pool(1);
    fs::create_directory(files.folder / "biased");
    write_outliers(ModelDir(files.path()), {.outliers = parse_outlier_spec(outliers), .seed = 0},
                   pool, files.folder / "biased");
  }

  CalibrateRequest request(const std::string& output) const {
    CalibrateRequest request;
    request.model = (files.folder / "biased").string();
    request.dataset = (test::tests_folder() / "cli/data/data.jsonl").string();
    request.device = test::reference_device();
    request.output.formats = {"compressed-tensors"};
    request.output.output = (files.folder / output).string();
    request.samples.num_calibration_samples = 6;
    request.reproducible = true;
    request.version = "test";
    request.smooths = true;
    return request;
  }

  SmoothResult smooth(const std::string& output) const {
    SmoothRequest smooth = smooth_request(request(output));
    smooth.output = (files.folder / output).string();
    SilentDiagnostics silent;
    return smooth_checkpoint(smooth, silent);
  }

  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const fs::path& path : paths_in(files.folder.path()))
      names.insert(path.filename().string());
    return names;
  }

  test::TextCheckpoint files;
};

std::optional<CalibrationResult> calibrated(const CalibrateRequest& request,
                                            Diagnostics& diagnostics) {
  RankSession session({});
  std::optional<CalibrationResult> result;
  calibrate_checkpoint(request, session, diagnostics,
                       {.written = [&](const CalibrationResult& written) { result = written; }});
  session.done();
  return result;
}

std::string refusal_of(const CalibrateRequest& request) {
  SilentDiagnostics silent;
  return message_of([&] { calibrated(request, silent); });
}

void check_same_tensors(const fs::path& one, const fs::path& other) {
  const ModelDir a(one), b(other);
  REQUIRE(a.tensor_names() == b.tensor_names());
  for (const std::string& name : a.tensor_names()) {
    INFO(name);
    CHECK(std::ranges::equal(a.tensor(name).bytes, b.tensor(name).bytes));
  }
}

}  // namespace

TEST_CASE("smoothed_model: one run writes what smooth and then calibrate write") {
  const Biased biased;
  test::KeptLines lines;
  const auto result = calibrated(biased.request("out"), lines);
  REQUIRE(result);
  REQUIRE(biased.smooth("even").is_changed());
  CalibrateRequest second = biased.request("second");
  second.smooths = false;
  second.recipe = kAttentionRecipe;
  second.model = (biased.files.folder / "even").string();
  REQUIRE(calibrated(second, lines));
  check_same_tensors(biased.files.folder / "out", biased.files.folder / "second");

  const Json& manifest = result->output.manifest;
  const Json even = parse_json(read_text(biased.files.folder / "even" / kManifestName));
  CHECK(manifest.at("smoothing") == even.at("smoothing"));
  CHECK(manifest.at("model") == even.at("model"));
  CHECK(manifest.at("model").at("sha256") == ModelDir(biased.request("").model).sha256());
  CHECK(std::ranges::any_of(lines.notes, [](const std::string& note) {
    return contains(note, "pairs turned") && contains(note, "predicted KL with scale 1.0");
  }));
  CHECK(biased.names() ==
        std::set<std::string>{"biased", "even", "model", "out", "second", "text.txt"});
}

TEST_CASE("smoothed_model: what is measured runs the rewritten weights against the model's own") {
  const Biased biased;
  test::KeptLines lines;
  CalibrateRequest request = biased.request("out");
  const auto rewritten = calibrated(request, lines);
  request.score = {.num_sequences = 4, .max_seq_length = 64};
  const ScoredScales mended = score_scales(request, *rewritten, lines);
  request.smooths = false;
  request.output.output = (biased.files.folder / "plain").string();
  const auto plain = calibrated(request, lines);
  const ScoredScales damaged = score_scales(request, *plain, lines);
  CHECK(mended.num_sequences == damaged.num_sequences);
  CHECK(*mended.calibrated.reference_perplexity == *damaged.calibrated.reference_perplexity);
  CHECK(*mended.unit.kl_mean < *damaged.unit.kl_mean);
}

TEST_CASE("smoothed_model: what scales chosen by attention clip of K is not held against them") {
  const Biased biased;
  test::KeptLines lines;
  CalibrateRequest request = biased.request("out");
  request.smooths = false;
  request.recipe = kAttentionRecipe;
  auto result = calibrated(request, lines);
  REQUIRE(result);
  CHECK(result->by_attention);
  // As if scales clipped half of K, and then all of V, in one layer.
  CodeErrors& k = result->summary->layers.at(0).k.calibrated;
  k.clipped = 0.5 * k.values;
  request.score = {.num_sequences = 4, .max_seq_length = 64};
  CHECK(score_scales(request, *result, lines).calibrated_clipped == 0.0);
  result->by_attention = false;
  CHECK(score_scales(request, *result, lines).calibrated_clipped > 0.1);
  result->by_attention = true;
  CodeErrors& v = result->summary->layers.at(0).v.calibrated;
  v.clipped = v.values;
  CHECK(score_scales(request, *result, lines).calibrated_clipped == 1.0);
}

TEST_CASE("smoothed_model: a model that gains nothing is calibrated as it is") {
  const test::TextCheckpoint files;
  CalibrateRequest request = Biased("bias:norm=1").request("");
  request.model = files.path();
  request.output.output = (files.folder / "out").string();
  test::KeptLines lines;
  const auto result = calibrated(request, lines);
  REQUIRE(result);
  CHECK(result->output.manifest.at("model").at("path") == files.path());
  CHECK_FALSE(result->output.manifest.contains("smoothing"));
  const ModelDir source(files.path()), output(files.folder / "out");
  for (const std::string& name : source.tensor_names())
    CHECK(std::ranges::equal(source.tensor(name).bytes, output.tensor(name).bytes));
}

TEST_CASE("smoothed_model: what cannot hold or use rewritten weights is refused before the work") {
  const Biased biased;
  CalibrateRequest five = biased.request("out");
  five.output.kv_cache_dtype = "fp8_e5m2";
  CHECK(contains(refusal_of(five), "for a cache of fp8_e4m3, and --kv-cache-dtype is fp8_e5m2"));
  CalibrateRequest overlay = biased.request("out");
  overlay.output.scales_only = true;
  CHECK(contains(refusal_of(overlay), "--smooth rewrites weights, which the output has to hold"));
  CalibrateRequest scales = biased.request("out.json");
  scales.output.formats = {"scales-json"};
  CHECK(contains(refusal_of(scales), "--smooth rewrites weights, which the output has to hold"));
  CalibrateRequest statistics = biased.request("out");
  statistics.kv_forward = "exact";
  statistics.save_statistics = (biased.files.folder / "kept").string();
  CHECK(contains(refusal_of(statistics), "--smooth and --save-statistics exclude each other"));
  CalibrateRequest latent = biased.request("out");
  latent.model = test::model_fixture("deepseek_v3").string();
  CHECK(contains(refusal_of(latent), "nothing to align"));
  CHECK(biased.names() == std::set<std::string>{"biased", "model", "text.txt"});
}

TEST_CASE("smoothed_model: an interrupt leaves neither output nor rewritten model") {
  class Stopping : public SilentDiagnostics {
   public:
    void progress(std::string_view, int64_t, int64_t, std::string_view) override {
      request_interrupt();
    }
  };
  const Biased biased;
  Stopping stopping;
  CHECK_THROWS_AS(calibrated(biased.request("out"), stopping), Interrupted);
  clear_interrupt();
  CHECK(biased.names() == std::set<std::string>{"biased", "model", "text.txt"});
}

TEST_CASE("smoothed_model: a dry run counts the rewritten model") {
  const Biased biased;
  SilentDiagnostics silent;
  CalibrateRequest request = biased.request("out");
  const CalibrationPreview preview = preview_calibration(request, 0, silent);
  request.smooths = false;
  const CalibrationPreview plain = preview_calibration(request, 0, silent);
  CHECK(preview.smoothed_bytes == preview.output_bytes);
  CHECK(preview.disk_bytes() == plain.disk_bytes() + preview.smoothed_bytes);
  CHECK(to_json(preview).at("disk").at("smoothed_bytes") == preview.smoothed_bytes);
}
