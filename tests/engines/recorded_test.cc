// What verify says against what engines were seen to do: reference/engines_vllm.py and
// engines_transformers.py run the engines on variants of one checkpoint, good and broken, and
// record what their attention layers hold. The variants' tensors and configurations are in the
// records.
#include "engines/support/recorded_variant.h"
#include "support/catch.h"

using namespace kvcal;
using test::agrees;
using test::record_of;
using test::verify_variant;

namespace {

/// The version that a record is of.
std::string version_of(const std::string& engine) {
  return engine + "@" + record_of(engine).at("version").get<std::string>();
}

void check_variant(const std::string& engine, const std::string& name, const Json& variant) {
  const VerifyReport report =
      verify_variant(version_of(engine), record_of(engine).at("config"), variant);
  const Json& seen = variant.at("seen");
  INFO(engine << " " << name << ": " << dump_json(report_json(report)) << seen.dump());
  REQUIRE(report.loads == seen.at("loads").get<bool>());
  if (!report.loads) {
    CHECK(loses_scales(report));
    CHECK(report.layers.empty());
    return;
  }
  CHECK(report.kv_cache_dtype == seen.at("cache_dtype"));
  REQUIRE(report.layers.size() == seen.at("layers").size());
  for (size_t layer = 0; layer < report.layers.size(); ++layer) {
    INFO("layer " << layer);
    CHECK(agrees(report.layers[layer].k, seen.at("layers")[layer].at("k")));
    CHECK(agrees(report.layers[layer].v, seen.at("layers")[layer].at("v")));
  }
}

void check_record(const std::string& engine, size_t least) {
  const Json& variants = record_of(engine).at("variants");
  REQUIRE(variants.size() >= least);
  for (const auto& [name, variant] : variants.items()) check_variant(engine, name, variant);
}

/// The worst finding of a variant: "error", "warning", "note", or "" for none.
std::string worst(const std::string& engine, const std::string& variant) {
  const VerifyReport report = verify_variant(version_of(engine), record_of(engine).at("config"),
                                             record_of(engine).at("variants").at(variant));
  return report.findings.empty() ? std::string()
                                 : std::string(name_of(report.findings.front().severity));
}

}  // namespace

TEST_CASE("verify says of every variant what vLLM was seen to do") {
  check_record("vllm", 60);
}

TEST_CASE("verify says of every variant what transformers was seen to do") {
  check_record("transformers", 40);
}

TEST_CASE("good checkpoints have no findings, lost scales and gaps are errors") {
  for (const char* variant : {"ct", "ct_scalar_shape", "ct_f16", "ct_attn_head",
                              "ct_modelopt_names", "ct_q_and_zero_points", "ct_fp8", "plain"}) {
    INFO(variant);
    CHECK(worst("vllm", variant).empty());
  }
  for (const char* variant :
       {"ct_misnamed", "ct_kv_scale_only", "ct_and_kv_scale", "ct_output_scale", "ct_unknown_layer",
        "ct_heads_for_tensor", "ct_zero_and_negative", "ct_int8", "ct_e5m2", "plain_scales",
        "modelopt_v_only", "quark", "ct_v_missing", "ct_layer_missing", "ct_v_only",
        "modelopt_layer_missing", "fp8_one_v_missing"}) {
    INFO(variant);
    CHECK(worst("vllm", variant) == "error");
  }
  for (const char* variant : {"ct_ignored_layer", "ct_dynamic", "ct_fnuz", "plain_fp8",
                              "modelopt_k_only", "modelopt_no_scales", "fp8_kv_scale"}) {
    INFO(variant);
    CHECK(worst("vllm", variant) == "warning");
  }
  for (const char* variant : {"ct_no_scheme", "ct_bfloat16", "modelopt", "fp8", "fp8_auto"}) {
    INFO(variant);
    CHECK(worst("vllm", variant) == "note");
  }
  CHECK(worst("transformers", "ct_v_missing") == "error");
  CHECK(worst("transformers", "modelopt") == "error");
}
