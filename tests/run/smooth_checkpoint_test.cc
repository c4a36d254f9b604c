// Even channels, by one call and without a process.
#include "run/smooth_checkpoint.h"

#include "checkpoint/model_dir.h"
#include "core/interrupt.h"
#include "export/checkpoint_copy.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;
using test::ScratchFolder;

namespace {

SmoothRequest request_in(const ScratchFolder& scratch, const std::string& fixture) {
  test::write_file(scratch / "data.jsonl", R"({"input_ids": [1, 5, 9, 13, 2, 7]})"
                                           "\n"
                                           R"({"input_ids": [3, 3, 8, 1]})"
                                           "\n");
  SmoothRequest request;
  request.model = test::model_fixture(fixture).string();
  request.dataset = (scratch / "data.jsonl").string();
  request.device.threads = 1;
  request.output = (scratch / "out").string();
  request.version = "test";
  return request;
}

}  // namespace

TEST_CASE("smooth_checkpoint: the output is a checkpoint of the same config, with a manifest") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  const SmoothRequest request = request_in(scratch, "llama");
  const SmoothResult result = smooth_checkpoint(request, silent);
  CHECK(result.num_samples == 2);
  CHECK(result.num_tokens == 10);
  CHECK(result.written.changed > 0);
  CHECK(result.written.largest_error == 0.0);
  const ModelDir output(scratch / "out"), source(request.model);
  CHECK(config_text(output.config()) == config_text(source.config()));
  CHECK(output.tensor_names() == source.tensor_names());
  const Json manifest = parse_json(read_text(scratch / "out/kvcal_manifest.json"));
  CHECK(manifest == result.manifest);
  const Json& k = manifest.at("smoothing").at("k").at("largest_over_mean_channel");
  CHECK(k.at("after").get<double>() < k.at("before").get<double>());
  CHECK(manifest.at("dataset").at("num_tokens") == 10);

  // Smoothed once more, nothing is left to do, and what this wrote may be replaced.
  SmoothRequest again = request_in(scratch, "llama");
  again.model = (scratch / "out").string();
  again.output = (scratch / "again").string();
  smooth_checkpoint(again, silent);
  const ModelDir twice(scratch / "again");
  for (const std::string& name : output.tensor_names())
    CHECK(std::ranges::equal(output.tensor(name).bytes, twice.tensor(name).bytes));
  again.overwrite = true;
  CHECK_NOTHROW(smooth_checkpoint(again, silent));
}

TEST_CASE("smooth_checkpoint: what cannot be smoothed is refused before anything runs") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  const auto refusal = [&](const std::string& fixture) {
    return message_of([&] { smooth_checkpoint(request_in(scratch, fixture), silent); });
  };
  CHECK(contains(refusal("deepseek_v3"), "nothing to smooth: family deepseek_v3 caches a latent"));
  CHECK(contains(refusal("deepseek_v3_fp8"), "describes a quantization"));
  SmoothRequest inside = request_in(scratch, "llama");
  inside.output = inside.model + "/out";
  CHECK(message_of([&] { smooth_checkpoint(inside, silent); }) != "");
  CHECK_FALSE(fs::exists(scratch / "out"));
}

TEST_CASE("smooth_checkpoint: an interrupt leaves no output") {
  class Stopping : public SilentDiagnostics {
   public:
    void progress(std::string_view, int64_t, int64_t, std::string_view) override {
      request_interrupt();
    }
  };
  const ScratchFolder scratch;
  Stopping stopping;
  CHECK_THROWS_AS(smooth_checkpoint(request_in(scratch, "llama"), stopping), Interrupted);
  clear_interrupt();
  CHECK_FALSE(fs::exists(scratch / "out"));
}

TEST_CASE("smooth_checkpoint: the lines tell both sides") {
  SmoothResult result;
  result.num_samples = 3;
  result.num_tokens = 70;
  result.smoothing.k = Unevenness{.before = 9.26, .after = 1.21};
  result.smoothing.v_reason = "family x norms V";
  result.written.changed = 12;
  const auto lines = smoothing_lines(result);
  CHECK(lines.at(0).second == "3, 70 tokens");
  CHECK(lines.at(1).second == "the largest channel of a head is 9.26 times the mean one, now 1.21");
  CHECK(lines.at(2).second == "as it was: family x norms V");
  CHECK(lines.at(3) == std::pair<std::string, std::string>("changed", "12 tensors"));
  CHECK(lines.at(4).second == "the same, bit for bit");
  result.written.widened = 2;
  result.written.largest_error = 1e-5;
  CHECK(contains(smoothing_lines(result).at(3).second, "2 are float32 now"));
  CHECK(contains(smoothing_lines(result).at(4).second, "but for rounding of norms"));
}
