#include "engines/engine_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// What tests/reference/<engine>_scale_loading.py saw, by model_type: whether any fixture of the
/// type was loaded with its scales. A type none of whose fixtures could be built is not there.
std::map<std::string, bool> seen_by(const std::string& engine) {
  const Json file =
      parse_json(read_text(KVCAL_TESTS_DIR "/fixtures/export/" + engine + "_scale_loading.json"));
  std::map<std::string, bool> seen;
  for (const auto& [name, model] : file.at("models").items())
    if (const Json* loads = find_field(model, "loads"))
      seen[model.at("model_type").get<std::string>()] |= loads->get<bool>();
  return seen;
}

/// The names of --format; tests of tools see that they are the writers'.
const std::vector<std::string_view> kFormats{"compressed-tensors", "fp8",      "tgi",
                                             "scales-json",        "modelopt", "quark"};

const EngineFormat& row_of(std::string_view engine, std::string_view format) {
  for (const auto& [name, rules] : engine_rules().rows())
    for (const EngineFormat& row : rules.formats)
      if (rules.title == engine && row.format == format) return row;
  throw std::runtime_error("no such row");
}

Reads verdict(std::string_view engine, std::string_view format, std::string_view model_type) {
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    if (verdict.engine == engine && verdict.format == format) return verdict.reads;
  throw std::runtime_error("no such verdict");
}

void check_row(const std::string& engine, const std::string& file) {
  const std::map<std::string, bool> seen = seen_by(file);
  REQUIRE(seen.size() > 20);
  for (const auto& [model_type, loads] : seen) {
    INFO(engine << ", " << model_type);
    CHECK(name_of(verdict(engine, "compressed-tensors", model_type)) ==
          name_of(loads ? Reads::kYes : Reads::kNo));
  }
  const EngineFormat& row = row_of(engine, "compressed-tensors");
  std::vector<std::string_view> types = row.reads;
  for (const Miss& miss : row.misses) types.push_back(miss.model_type);
  for (const std::string_view type : types) {
    INFO(engine << " was not seen with " << type);
    CHECK(seen.contains(std::string(type)));
  }
}

}  // namespace

TEST_CASE("the table says of vLLM what vLLM was seen to do") {
  check_row("vLLM", "vllm");
}

TEST_CASE("the table says of transformers what transformers was seen to do") {
  check_row("transformers", "transformers");
}

TEST_CASE("every row of the table names one of our formats and is there once") {
  std::set<std::pair<std::string_view, std::string_view>> rows;
  for (const auto& [name, rules] : engine_rules().rows())
    for (const EngineFormat& row : rules.formats) {
      INFO(rules.title << ", " << row.format);
      CHECK(std::ranges::find(kFormats, row.format) != kFormats.end());
      CHECK(rows.emplace(rules.title, row.format).second);
      CHECK(!row.version.empty());
      for (const Miss& miss : row.misses) {
        CHECK(!miss.why.empty());
        CHECK(!row.reads_type(miss.model_type));
      }
    }
}

TEST_CASE("without evidence an engine's verdict is not known") {
  CHECK(verdict("vLLM", "compressed-tensors", "no_such_model") == Reads::kNotKnown);
  CHECK(verdict("SGLang", "scales-json", "mixtral") == Reads::kNotKnown);
  CHECK(verdict("SGLang", "scales-json", "llama") == Reads::kYes);
  CHECK(verdict("TensorRT-LLM", "compressed-tensors", "no_such_model") == Reads::kNo);
  CHECK(name_of(Reads::kNotKnown) == "not known");
}

TEST_CASE("a miss says why") {
  const auto note = [](std::string_view model_type) {
    return engine_verdicts(model_type).front().note;
  };
  CHECK(note("deepseek_v3").find("MLA") != std::string_view::npos);
  CHECK(note("gpt2").find("attn.k_scale") != std::string_view::npos);
  CHECK(note("llama") == "per tensor and per head");
}
