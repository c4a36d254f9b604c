// Weights without a model, by one call and without a process.
#include "run/quantize_checkpoint.h"

#include "checkpoint/model_dir.h"
#include "core/interrupt.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::ScratchFolder;

namespace {

QuantizeRequest request_in(const ScratchFolder& scratch) {
  return {.checkpoint = (test::tests_folder() / "fixtures/model_free/sources/llama_f16").string(),
          .scheme = "w4a16",
          .output = (scratch / "out").string(),
          .version = "test"};
}

}  // namespace

TEST_CASE("quantize_checkpoint: the result tells what is in the output") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  const QuantizeResult result = quantize_checkpoint(request_in(scratch), silent);
  CHECK(result.scheme == "W4A16");
  CHECK(result.format == "pack-quantized");
  CHECK(result.num_quantized == 14);
  CHECK(result.kept.size() == 2);
  const ModelDir output(scratch / "out");
  CHECK(output.shard_names().size() == 2);
  CHECK(output.find("model.layers.1.mlp.up_proj.weight_packed"));
  CHECK(output.config().at("quantization_config").at("ignore") ==
        Json({"lm_head", "model.embed_tokens"}));
  CHECK(result.source_bytes > 3 * (result.output_bytes - result.kept_bytes));
  const Json manifest = parse_json(read_text(scratch / "out/kvcal_manifest.json"));
  CHECK(manifest == result.manifest);
  CHECK(manifest.at("quantized").size() == 14);
  CHECK(manifest.at("left_alone").at("lm_head") == "head");
}

TEST_CASE("quantize_checkpoint: an interrupt leaves no output") {
  /// Asks for a stop when the first weight's scales are made.
  class Stopping : public SilentDiagnostics {
   public:
    void progress(std::string_view, int64_t, int64_t, std::string_view) override {
      request_interrupt();
    }
  };
  const ScratchFolder scratch;
  Stopping stopping;
  CHECK_THROWS_AS(quantize_checkpoint(request_in(scratch), stopping), Interrupted);
  clear_interrupt();
  CHECK(fs::is_empty(scratch.path()));
}
