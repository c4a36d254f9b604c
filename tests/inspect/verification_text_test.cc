#include "inspect/verification.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

const std::string kTitle = "vLLM 0.32 (run 2026-11-28)";

EngineLayer held(int64_t layer, float k) {
  const std::string module = "model.layers." + std::to_string(layer) + ".self_attn.";
  return {.layer = layer,
          .k = {.values = {k}, .source = module + "k_scale"},
          .v = {.values = {0.25f, 0.5f}, .source = module + "v_scale"}};
}

VerifyReport report_of_vllm() {
  VerifyReport report;
  report.engine = "vllm";
  report.version = "0.32";
  report.run_on = "2026-11-28";
  report.kv_cache_dtype = "fp8_e4m3";
  report.layers = {held(0, 0.125f), held(1, 0.5f)};
  return report;
}

}  // namespace

TEST_CASE("verification text: a row a layer with the source of its scales") {
  VerifyReport report = report_of_vllm();
  report.layers[0].k.source = "k";
  report.layers[0].v.source = "";
  report.layers[1].k.values.clear();
  report.layers[1].k.source = report.layers[1].v.source = "scales.json";
  CHECK(verification_text(report, "OUT", true) == kTitle +
                                                      ", OUT: KV cache fp8_e4m3\n"
                                                      "layer  k_scale   v_scale       source\n"
                                                      "    0    0.125  2 values   k, default\n"
                                                      "    1        ?  2 values  scales.json\n");
}

TEST_CASE("verification text: layers and notes are for those who ask for all") {
  VerifyReport report = report_of_vllm();
  report.findings = {
      {.severity = Severity::kWarning, .layers = {}, .message = "beware", .remedy = ""},
      {.severity = Severity::kNote, .layers = {}, .message = "hear", .remedy = ""}};
  CHECK(verification_text(report, "OUT", false) ==
        kTitle + ", OUT: KV cache fp8_e4m3\nwarning: beware\n");
  const std::string whole = verification_text(report, "OUT", true);
  CHECK(test::contains(whole, "\nnote: hear\nlayer  k_scale"));
}

TEST_CASE("verification JSON: one verdict, whatever the number of engines") {
  const VerifyReport used = report_of_vllm();
  VerifyReport lost = used;
  lost.engine = "tgi";
  lost.findings = {{.severity = Severity::kError, .layers = {}, .message = "lost", .remedy = ""}};
  const Json one = verification_json({used}, "");
  CHECK(one.at("engine") == "vllm");
  CHECK(one.at("verdict") == "used");
  CHECK(one.at("problem").is_null());
  const Json both = verification_json({used, lost}, "scales would be lost in tgi");
  CHECK(both.at("reports").size() == 2);
  CHECK(both.at("verdict") == "lost");
  CHECK(both.at("problem") == "scales would be lost in tgi");
}

TEST_CASE("verification text: findings name their layers and what to do") {
  VerifyReport report;
  report.engine = "vllm";
  report.version = "0.32";
  report.run_on = "2026-11-28";
  report.loads = false;
  report.findings = {
      {.severity = Severity::kError, .layers = {2}, .message = "is lost", .remedy = "write it"},
      {.severity = Severity::kNote, .layers = {0, 1, 4}, .message = "hear", .remedy = ""}};
  CHECK(verification_text(report, "OUT", true) == kTitle +
                                                      ", OUT: refused\n"
                                                      "error, layer 2: is lost\n"
                                                      "  remedy: write it\n"
                                                      "note, layers 0-1, 4: hear\n");
  report.loads = true;
  report.kv_cache_dtype = "auto";
  report.findings.clear();
  CHECK(verification_text(report, "OUT", true) == kTitle + ", OUT: KV cache of 16 bits\n");
}

TEST_CASE("verification text: the verdict names the engines that use the scales") {
  CHECK(verdict_text({}) == "OK: no scales are meant");
  Verdict verdict;
  verdict.holding = {"vllm", "tgi"};
  CHECK(verdict_text(verdict) == "OK: the scales are used by vllm, tgi");
  verdict.unknown = {"trtllm"};
  CHECK(verdict_text(verdict) ==
        "not known: whether trtllm uses the scales: it was not run with such models");
}

TEST_CASE("verification text: OK is not said of a cache of 16 bits") {
  Verdict verdict;
  verdict.idle = {"sglang", "tgi"};
  CHECK(verdict_text(verdict) == "not used: the scales, by sglang, tgi in a cache of 16 bits");
  verdict.holding = {"vllm"};
  CHECK(verdict_text(verdict) ==
        "OK: the scales are used by vllm; not used by sglang, tgi in a cache of 16 bits");
}
