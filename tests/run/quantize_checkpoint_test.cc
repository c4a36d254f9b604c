// Weights without a model, by one call and without a process.
#include "run/quantize_checkpoint.h"

#include "checkpoint/model_dir.h"
#include "core/interrupt.h"
#include "stored/fp8_checkpoint.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/model_fixture.h"
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

TEST_CASE("quantize_checkpoint: Kimi-K3's exceptions may be missing in a config, others not") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  QuantizeRequest request = request_in(scratch);
  request.checkpoint = test::model_fixture("kimi_k3").string();
  request.scheme = "fp8_dynamic";
  request.ignore = {"re:.*(self_attn|shared_experts|routed_expert|\\.mlp\\.).*"};
  quantize_checkpoint(request, silent);
  Json config = parse_json(read_text(scratch / "out/config.json"));
  const Json listed = config["quantization_config"]["ignore"];
  const auto problems_without = [&](std::string_view word) {
    Json& ignore = config["quantization_config"]["ignore"] = Json::array();
    for (const Json& name : listed)
      if (name.get<std::string>().find(word) == std::string::npos) ignore.push_back(name);
    CHECK(ignore.size() < listed.size());
    fs::remove(scratch / "out/config.json");
    test::write_file(scratch / "out/config.json", dump_as_python(config));
    const ModelDir output(scratch / "out");
    return read_checkpoint_quantization(output, read_model_config(output)).problems;
  };
  // As in the published one. Source: llm-compressor 0.14, `patch_kimi_k3_ignore`.
  for (const char* word : {"self_attention_res_proj", "mlp_res_proj", "output_attn_res_proj",
                           "routed_expert_down_proj", "routed_expert_up_proj"})
    CHECK(problems_without(word).empty());
  CHECK_FALSE(problems_without("kv_b_proj").empty());
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
