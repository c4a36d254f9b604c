#include "stored/scales_file.h"

#include "quant/scale.h"
#include "stored/kv_scales.h"
#include "stored/read_model_config.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;

namespace {

/// Files of two engines, and what the engines' own code holds of them or says against them
/// (reference/scales_files.py).
const Json& engine_cases() {
  static const Json cases =
      parse_json(read_text(test::tests_folder() / "fixtures" / "scales_files.json"));
  return cases;
}

ModelConfig config_of(const Json& test_case) {
  return read_model_config(ModelDir(test::tests_folder() / "fixtures" / "export" / "source" /
                                    test_case.at("source").get<std::string>()));
}

const StoredFormat& format_of(const Json& test_case) {
  for (const StoredFormat* format : stored_formats())
    if (format->name == test_case.at("format").get<std::string>()) return *format;
  fail("no such format");
}

ScalesBeside read(const Json& document, const StoredFormat& format, const ModelConfig& config) {
  const test::ScratchFolder scratch;
  test::write_file(scratch / "scales.json", dump_json(document));
  return format.read_beside(scratch / "scales.json", config);
}

std::vector<float> values(const std::vector<Scale>& scales) {
  std::vector<float> all;
  for (const Scale& scale : scales) all.push_back(scale.value);
  return all;
}

/// What the engine holds for a head: one value, or one a channel, all the same.
std::vector<float> heads_of(const Json& held, size_t count) {
  std::vector<float> heads;
  for (size_t i = 0; i < held.size(); ++i) {
    if (i % (held.size() / count) == 0) heads.push_back(held[i].get<float>());
    CHECK(held[i].get<float>() == heads.back());
  }
  return heads;
}

Json genai_document() {
  return {{"scales", {{"k_scales", {0.5, 0.25}}, {"v_scales", {0.125, 0.0625}}}},
          {"qmax", 448.0},
          {"layer_ids", {0, 1}}};
}

std::string refusal(const Json& document, const char* format) {
  const Json test_case{{"source", "single"}, {"format", format}};
  return test::message_of([&] { read(document, format_of(test_case), config_of(test_case)); });
}

}  // namespace

TEST_CASE("scales files: every value is the one that the engine's own code holds") {
  int num_held = 0;
  for (const Json& test_case : engine_cases()) {
    if (!test_case.contains("held")) continue;
    INFO(test_case.at("format") << ": " << test_case.at("name"));
    const ScalesBeside scales =
        read(test_case.at("document"), format_of(test_case), config_of(test_case));
    CHECK(scales.ranks.empty());
    // kvcal takes a file for INT8 as it is; the builder made scales of an FP8 cache of it.
    const bool is_int8 = scales.format.is_int8();
    CHECK((is_int8 || scales.format == fp8::Format::kE4m3Fn));
    CHECK(is_int8 == (test_case.at("name") == "qmax of INT8"));
    REQUIRE(scales.layers.size() == test_case.at("held").at("k").size());
    for (size_t layer = 0; layer < scales.layers.size(); ++layer) {
      const LayerKvScales& own = scales.layers[layer];
      for (const auto& [side, held] : {std::pair(&own.k, "k"), {&own.v, "v"}}) {
        std::vector<float> found = values(*side);
        for (float& scale : found)
          if (is_int8) scale = static_cast<float>(static_cast<double>(scale) * 128 / 448);
        CHECK(found == heads_of(test_case.at("held").at(held)[layer], side->size()));
      }
    }
    ++num_held;
  }
  CHECK(num_held >= 8);
}

TEST_CASE("scales files: what an engine stops at is an error that names the file") {
  int num_refused = 0;
  for (const Json& test_case : engine_cases()) {
    if (!test_case.contains("refused")) continue;
    INFO(test_case.at("format") << ": " << test_case.at("name"));
    const std::string message = test::message_of(
        [&] { read(test_case.at("document"), format_of(test_case), config_of(test_case)); });
    CHECK(contains(message, "scales.json: "));
    ++num_refused;
  }
  CHECK(num_refused >= 20);
}

TEST_CASE("scales files: a file without qmax does not say of which cache it is") {
  Json document = genai_document();
  document.erase("qmax");
  CHECK(contains(refusal(document, "onnxruntime-genai"), "key 'qmax' is missing"));
}

TEST_CASE("scales files: channels of one head with scales of their own fit no FP8 cache") {
  Json document = genai_document();
  document["scales"]["k_scales"][1] = {0.5, 0.5, 0.25, 0.125};
  document["scales"]["v_scales"][1] = {0.5, 0.5, 0.25, 0.25};
  CHECK(contains(refusal(document, "onnxruntime-genai"),
                 "layer 1: K: channels of head 1 have scales 0.25 and 0.125; scales of FP8 caches "
                 "are those of heads"));
  document["scales"]["k_scales"][1] = 0.5;
  CHECK(contains(refusal(document, "onnxruntime-genai"), "layer 1: 1 scale of K, 2 of V"));
}

TEST_CASE("scales files: LightLLM takes any number, kvcal none that is no scale") {
  const Json good{{"version", "1.0"},
                  {"architectures", "LlamaForCausalLM"},
                  {"quant_type", "per_tensor"},
                  {"qmin", -448.0},
                  {"qmax", 448.0},
                  {"num_layers", 2},
                  {"num_head", 2},
                  {"scales_shape", {2, 2}},
                  {"scales", {{0.5, 0.25}, {0.125, 0.0625}}}};
  CHECK(refusal(good, "lightllm") == "no error");
  for (const Json& scale : {Json(0.0), Json(-1.0), Json(true), Json(nullptr)}) {
    Json bad = good;
    bad["scales"][1][0] = scale;
    CHECK(contains(refusal(bad, "lightllm"), "layer 1: "));
  }
  Json other = good;
  other["num_head"] = 4;
  CHECK(contains(refusal(other, "lightllm"), "key 'num_head' is 4, expected 2"));
}

TEST_CASE("scales files: a file is told apart by what it holds, in a folder by its name") {
  const auto form = [](const fs::path& place) -> std::string_view {
    for (const StoredFormat* format : stored_formats())
      if (format->find_beside && format->find_beside(place)) return format->name;
    return "none";
  };
  const test::ScratchFolder scratch;
  for (const Json& test_case : engine_cases()) {
    if (!test_case.contains("written")) continue;
    test::write_file(scratch / "any.json", dump_json(test_case.at("document")));
    CHECK(form(scratch / "any.json") == test_case.at("format").get<std::string>());
  }
  test::write_file(scratch / "any.json", R"({"model": {"scales": {"k_scales": []}}})");
  CHECK(form(scratch / "any.json") == "onnxruntime-genai");
  for (const char* text : {"{", "[]", R"({"kv_cache": {}})", R"({"scales": []})"}) {
    test::write_file(scratch / "any.json", text);
    CHECK(form(scratch / "any.json") == "scales-json");
  }
  CHECK(form(scratch / "none.json") == "none");
  CHECK(form(scratch.path()) == "none");
  test::write_file(scratch / "kv_scales.json", "{}");
  CHECK(form(scratch.path()) == "onnxruntime-genai");
  test::write_file(scratch / "kv_cache_calib.json", "{}");
  CHECK(form(scratch.path()) == "lightllm");
}
