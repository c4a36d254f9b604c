// What verify says against what engines were seen to do: tests/reference/engines_vllm.py and
// engines_transformers.py run the engines on variants of one checkpoint, good and broken, and
// record what their attention layers hold. The variants' tensors and configurations are in the
// records.
#include <cmath>
#include <map>
#include <set>

#include "engines/support/engine_case.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using test::EngineCase;

namespace {

Json fixture(const std::string& name) {
  return parse_json(
      read_text(test::tests_folder().string() + "/fixtures/engines/" + name + ".json"),
      {.has_python_constants = true});
}

const Json& record_of(const std::string& engine) {
  static std::map<std::string, Json> records;
  Json& record = records[engine];
  if (record.is_null()) record = fixture(engine);
  return record;
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

void add_tensors(EngineCase& subject, const Json& tensors, const std::string& file = {}) {
  for (const auto& [name, tensor] : tensors.items())
    subject.add_bytes(name, *dtype_from_name(tensor.at("dtype").get<std::string>()),
                      tensor.at("shape").get<std::vector<int64_t>>(),
                      from_hex(tensor.at("bytes").get<std::string>()), file);
}

/// Files beside the one of the weights, and the index, which does not name all of them.
void add_files(EngineCase& subject, const Json& variant) {
  if (variant.contains("files"))
    for (const auto& [file, tensors] : variant.at("files").items())
      add_tensors(subject, tensors, file);
  if (!variant.contains("index")) return;
  const std::string main = "model-00001-of-00002.safetensors";
  subject.set_main_file(main);
  Json index = variant.at("index");
  index["model.norm.weight"] = main;
  subject.write("model.safetensors.index.json",
                {{"metadata", Json::object()}, {"weight_map", index}});
}

VerifyReport verify_variant(const std::string& engine, const Json& base, const Json& variant) {
  Json config = base;
  if (variant.contains("config")) config.update(variant.at("config"));
  const Json raw = variant.value("raw", Json::object());
  for (const auto& [key, value] : raw.items()) {
    config[key] = value;
    if (value == "absent") config.erase(key);
  }
  EngineCase subject(config);
  if (variant.contains("quantization_config")) subject.quantize(variant.at("quantization_config"));
  if (variant.contains("hf_quant_config"))
    subject.write("hf_quant_config.json", variant.at("hf_quant_config"));
  add_tensors(subject, variant.at("tensors"));
  add_files(subject, variant);
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
    const float wanted = list[i] == "nan"      ? std::nanf("")
                         : list[i].is_string() ? INFINITY
                                               : list[i].get<float>();
    // One value stands for all heads.
    if (held.values.size() != 1 && held.values.size() != list.size()) return false;
    if (!is_same(held.values[held.values.size() == 1 ? 0 : i], wanted)) return false;
  }
  return true;
}

void check_variant(const std::string& engine, const std::string& name, const Json& variant) {
  const VerifyReport report = verify_variant(engine, record_of(engine).at("config"), variant);
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
  const VerifyReport report = verify_variant(engine, record_of(engine).at("config"),
                                             record_of(engine).at("variants").at(variant));
  return report.findings.empty() ? std::string()
                                 : std::string(name_of(report.findings.front().severity));
}

/// What verify says, where an Error is its word.
VerifyReport report_of(const std::string& engine, const Json& base, const Json& variant) try {
  return verify_variant(engine, base, variant);
} catch (const Error& error) {
  VerifyReport report;
  report.loads = false;
  report.findings.push_back({Severity::kError, {}, error.what(), {}});
  return report;
}

/// Where the report is another than what the engine was seen to do; empty: nowhere.
std::string difference(const VerifyReport& report, const Json& seen) {
  if (report.loads != seen.at("loads").get<bool>())
    return report.loads ? "refused" : "loads, verify: " + report.findings.front().message;
  if (!report.loads) return {};
  const std::string cache = seen.at("cache_dtype");
  // The habits ask every engine in the same word.
  if (report.kv_cache_dtype.starts_with("fp8") != cache.starts_with("fp8"))
    return "cache " + cache + ", verify: " + report.kv_cache_dtype;
  const Json& layers = seen.at("layers");
  if (report.layers.size() != layers.size()) return "other layers";
  for (size_t layer = 0; layer < layers.size(); ++layer)
    if (!agrees(report.layers[layer].k, layers[layer].at("k")) ||
        !agrees(report.layers[layer].v, layers[layer].at("v")))
      return "layer " + std::to_string(layer) + " holds " + layers[layer].dump() +
             ", verify: " + report_json(report).at("layers")[layer].dump();
  return {};
}

/// known: habits of which verify says something else.
void check_habits(const std::string& engine, const std::set<std::string>& known) {
  const Json all = fixture("habits"), answers = fixture("habits_" + engine);
  size_t count = 0;
  for (const auto& [name, seen] : answers.at("variants").items()) {
    const VerifyReport report = report_of(engine, all.at("config"), all.at("variants").at(name));
    ++count;
    INFO(engine << " " << name);
    if (known.contains(name)) {
      CHECK_FALSE(difference(report, seen).empty());
      continue;
    }
    CHECK(difference(report, seen) == "");
    if (!seen.at("loads").get<bool>()) CHECK(loses_scales(report));
  }
  CHECK(count > 200);
}

}  // namespace

TEST_CASE("verify says of other tools' habits what SGLang was seen to do") {
  // Files: SGLang takes every file of the folder, or the index's alone, where verify wants one
  // truth. Configurations: methods and places of ModelOpt's fields that verify does not know.
  check_habits("sglang",
               {"files_index_empty", "files_index_wrong_place", "files_no_index",
                "files_no_index_before", "files_stale_single", "files_twice",
                "modelopt_in_config_nested", "modelopt_in_config_no_scheme", "modelopt_kv_absent",
                "modelopt_mixed", "modelopt_mixed_map", "modelopt_no_algo", "other_method_fbgemm",
                "other_method_unknown", "quark_no_export", "shape_empty"});
}

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
