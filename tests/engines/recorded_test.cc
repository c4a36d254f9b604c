// What verify says against what engines were seen to do: tests/reference/engines_vllm.py and
// engines_transformers.py run the engines on variants of one checkpoint, good and broken, and
// record what their attention layers hold. The variants' tensors and configurations are in the
// records.
#include <cmath>

#include "engines/support/engine_case.h"
#include "support/catch.h"

using namespace kvcal;
using test::EngineCase;

namespace {

const Json& record_of(const std::string& engine) {
  static std::map<std::string, Json> records;
  Json& record = records[engine];
  if (record.is_null())
    record = parse_json(read_text(KVCAL_TESTS_DIR "/fixtures/engines/" + engine + ".json"));
  return record;
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

VerifyReport verify_variant(const std::string& engine, const Json& variant) {
  Json config = record_of(engine).at("config");
  if (variant.contains("config")) config.update(variant.at("config"));
  EngineCase subject(config);
  if (variant.contains("quantization_config")) subject.quantize(variant.at("quantization_config"));
  if (variant.contains("hf_quant_config"))
    subject.write("hf_quant_config.json", variant.at("hf_quant_config"));
  for (const auto& [name, tensor] : variant.at("tensors").items())
    subject.add_bytes(name, *dtype_from_name(tensor.at("dtype").get<std::string>()),
                      tensor.at("shape").get<std::vector<int64_t>>(),
                      from_hex(tensor.at("bytes").get<std::string>()));
  VerifyOptions options;
  options.kv_cache_dtype = variant.value("kv_cache_dtype", "auto");
  options.is_rocm = variant.value("rocm", false);
  return subject.verify(engine, options);
}

bool is_same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

/// seen: a number, "nan", one number a head, "undefined", or null where the module has no scale.
bool agrees(const HeldScale& held, const Json& seen) {
  if (seen.is_null()) return held.values.empty() || held.source.empty();
  if (seen == "undefined") return held.values.empty();
  const Json list = seen.is_array() ? seen : Json::array({seen});
  for (size_t i = 0; i < list.size(); ++i) {
    const float wanted = list[i].is_string() ? std::nanf("") : list[i].get<float>();
    // One value stands for all heads.
    if (held.values.size() != 1 && held.values.size() != list.size()) return false;
    if (!is_same(held.values[held.values.size() == 1 ? 0 : i], wanted)) return false;
  }
  return true;
}

void check_variant(const std::string& engine, const std::string& name, const Json& variant) {
  const VerifyReport report = verify_variant(engine, variant);
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
  const VerifyReport report = verify_variant(engine, record_of(engine).at("variants").at(variant));
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

TEST_CASE("good checkpoints have no findings, lost scales are errors, 1.0 is a warning") {
  for (const char* variant : {"ct", "ct_scalar_shape", "ct_f16", "ct_attn_head",
                              "ct_modelopt_names", "ct_q_and_zero_points", "ct_fp8", "plain"}) {
    INFO(variant);
    CHECK(worst("vllm", variant).empty());
  }
  for (const char* variant :
       {"ct_misnamed", "ct_kv_scale_only", "ct_and_kv_scale", "ct_output_scale", "ct_unknown_layer",
        "ct_heads_for_tensor", "ct_zero_and_negative", "ct_int8", "ct_e5m2", "plain_scales",
        "modelopt_v_only", "quark"}) {
    INFO(variant);
    CHECK(worst("vllm", variant) == "error");
  }
  for (const char* variant :
       {"ct_v_missing", "ct_layer_missing", "ct_ignored_layer", "ct_v_only", "ct_dynamic",
        "ct_fnuz", "plain_fp8", "modelopt_k_only", "modelopt_no_scales", "fp8_kv_scale"}) {
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
