#include "engines/engine_verdicts.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

/// What reference/<engine>_scale_loading.py saw, by model_type: whether any fixture of the
/// type was loaded with its scales. A type none of whose fixtures could be built is not there.
std::map<std::string, bool> seen_by(const std::string& engine) {
  const Json file = parse_json(read_text(test::tests_folder().string() + "/fixtures/export/" +
                                         engine + "_scale_loading.json"));
  std::map<std::string, bool> seen;
  for (const auto& [name, model] : file.at("models").items())
    if (const Json* loads = find_field(model, "loads"))
      seen[model.at("model_type").get<std::string>()] |= loads->get<bool>();
  return seen;
}

/// The names of --format; tests of tools see that they are the writers'.
const std::vector<std::string_view> kFormats{
    "compressed-tensors", "ascend", "fp8",         "lightllm", "modelopt",
    "onnxruntime-genai",  "quark",  "scales-json", "tgi"};

Reads verdict(std::string_view engine, std::string_view format, std::string_view model_type) {
  for (const EngineVerdict& verdict : engine_verdicts(choose_engine(engine), model_type))
    if (verdict.format == format) return verdict.reads;
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
}

}  // namespace

TEST_CASE("the table says of vLLM what vLLM was seen to do") {
  check_row("vllm@0.32", "vllm");
}

TEST_CASE("the table says of transformers what transformers was seen to do") {
  check_row("transformers@5.17", "transformers");
}

TEST_CASE("every row of the table names one of our formats and is there once") {
  std::set<std::pair<std::string_view, std::string_view>> rows;
  for (const auto& [name, rules] : engine_rules().rows())
    for (const EngineFormat& row : rules.formats) {
      INFO(rules.title << ", " << row.format);
      CHECK(std::ranges::find(kFormats, row.format) != kFormats.end());
      CHECK(rows.emplace(name, row.format).second);
      CHECK(row.otherwise != Reads::kNotKnown);
    }
}

TEST_CASE("every engine has a version and a name for people") {
  for (const auto& [name, rules] : engine_rules().rows()) {
    INFO(name);
    CHECK(!rules.title.empty());
    REQUIRE(!rules.versions.empty());
    CHECK(!rules.versions.front().empty());
  }
}

TEST_CASE("every explanation says why") {
  size_t told = 0;
  for (const EmbeddedText& table : answer_tables())
    for (const auto& [name, miss] : engine_answers(table.stem()).misses) {
      INFO(table.name << ", " << name);
      CHECK((miss.effect == MissEffect::kByRules || !miss.why.empty()));
      ++told;
    }
  CHECK(told > 100);
}

TEST_CASE("every table of answers is of a version of an engine") {
  for (const EmbeddedText& table : answer_tables()) {
    const size_t at = table.stem().find('_');
    const EngineChoice chosen = choose_engine(std::string(table.stem().substr(0, at)) + "@" +
                                              std::string(table.stem().substr(at + 1)));
    CHECK(&chosen.rules().seen() == &engine_answers(table.stem()));
    CHECK(chosen.rules().seen().has_run("llama"));
  }
}

TEST_CASE("an engine is chosen by name, or by name and version") {
  CHECK(choose_engine("vLLM@0.32").version == "0.32");
  CHECK(choose_engine("vllm@0.32").name == "vllm");
  CHECK(choose_engine("vllm@0.32.0").version == "0.32");
  CHECK(choose_engine("aphrodite-0.6").version == "0.6.5");
  CHECK(choose_engine("aphrodite@b42eeec22").version == "b42eeec22");
  CHECK(test::message_of([] { choose_engine("vllm@0.1"); }) ==
        "unknown version '0.1' of engine vllm; known are vllm@0.33, vllm@0.32");
  CHECK(test::contains(test::message_of([] { choose_engine("vlm@0.33"); }), "did you mean 'vllm'"));
}

TEST_CASE("a plain name is the newest version that was run, whose day its title has") {
  for (const std::string& name : engine_rules().names()) {
    INFO(name);
    const EngineChoice chosen = choose_engine(name);
    const std::vector<std::string_view> tables = answers_of(name);
    CHECK(versions_of(name).size() == std::max(tables.size(), size_t{1}));
    CHECK(chosen.run_on().empty() == tables.empty());
    if (tables.empty()) continue;
    CHECK(name + "_" + chosen.version == tables.back());
    CHECK(chosen.title() == std::string(chosen.rules().title) + " " + chosen.version + " (run " +
                                engine_answers(tables.back()).date + ")");
  }
  CHECK(choose_engine("trtllm").title() == "TensorRT-LLM 2026-08");
  CHECK(choose_engine("aphrodite@b42eeec22").title() == "Aphrodite b42eeec22");
}

TEST_CASE("a version newer than all that were run is answered with the newest, and said to be so") {
  for (const std::string name : {"vllm", "sglang", "aphrodite", "lmdeploy", "transformers"}) {
    const EngineChoice newest = choose_engine(name);
    CHECK(newest.warning().empty());
    for (const std::string& version : {newest.version + ".99", std::string("99.1rc2")}) {
      const EngineChoice newer = choose_engine(name + "@" + version);
      INFO(name << "@" << version);
      CHECK(newer.version == newest.version);
      CHECK(&newer.rules() == &newest.rules());
      CHECK(newer.warning() == name + "@" + version + ": not run with versions after " +
                                   newest.version + "; the answer is that of " + newest.title());
    }
  }
  // Hashes have no order, and of what was not run no version is newer than what was.
  for (const char* asked : {"tgi@99.1", "tgi@ffff", "trtllm@2027.1", "vllm@", "vllm@1e6e7db0",
                            "vllm@0.32.99", "transformers@5.20"})
    CHECK(test::contains(test::message_of([&] { choose_engine(asked); }), "unknown version"));
}

TEST_CASE("without evidence an engine's verdict is not known") {
  CHECK(verdict("vllm", "compressed-tensors", "no_such_model") == Reads::kNotKnown);
  CHECK(verdict("sglang", "scales-json", "mixtral") == Reads::kNo);
  CHECK(verdict("sglang", "compressed-tensors", "qwen3") == Reads::kNo);
  CHECK(verdict("sglang", "modelopt", "deepseek_v3") == Reads::kYes);
  CHECK(verdict("sglang", "scales-json", "llama") == Reads::kYes);
  CHECK(verdict("trtllm", "compressed-tensors", "no_such_model") == Reads::kNo);
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
