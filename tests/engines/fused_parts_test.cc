// What verify says where a configuration excepts one part of a fused Linear from quantization,
// against what the engines' own code did: reference/engines_fused.py records their answers.
#include <algorithm>
#include <map>
#include <set>

#include "core/folder.h"
#include "engines/support/family_case.h"

using namespace kvcal;
using test::EngineCase;
using test::recorded_checkpoints;

namespace {

constexpr std::string_view kRefusal = "as one, and refuses";

/// The record of an engine's answers, where there is one.
struct Record {
  std::string engine;  ///< "vllm@0.33"
  Json families;
};

std::vector<Record> records() {
  std::vector<Record> all;
  for (const EmbeddedText& text : answer_tables()) {
    const Json table = parse_json(text.text);
    const std::string file = "fused_" + table.at("records").get<std::string>() + ".json";
    if (is_there(test::tests_folder() / "fixtures/engines" / file))
      all.push_back(
          {table.at("engine").get<std::string>() + "@" + table.at("version").get<std::string>(),
           test::engine_fixture(file).at("families")});
  }
  return all;
}

/// A family's form whose list of exceptions has one more entry; without its weights.
struct PartCase {
  EngineCase subject;

  PartCase(const std::string& family, const Json& list, const std::string& entry)
      : subject(test::recorded_config(family)) {
    const Json& form =
        recorded_checkpoints().at("families").at(family).at("forms").at(list[0].get<std::string>());
    Json config = configuration(form[0]);
    config.at(list[1].get<std::string>()).push_back(entry);
    subject.quantize(config);
    if (!form[1].is_null()) {
      Json file = configuration(form[1]);
      file.at("quantization")["exclude_modules"].push_back(entry);
      subject.write("hf_quant_config.json", file);
    }
    for (const auto& [name, tensor] : form[2].items()) {
      test::add_embedding(subject, name);
      for (const Json& layer : tensor.at(2)) {
        std::string filled = name;
        filled.replace(filled.find("{}"), 2, std::to_string(layer.get<int64_t>()));
        subject.add(filled, 0.25f);
      }
    }
  }

 private:
  static Json configuration(const Json& index) {
    return recorded_checkpoints().at("configs").at(index.get<size_t>());
  }
};

bool refuses_parts(const VerifyReport& report) {
  return std::ranges::any_of(report.findings, [](const Finding& finding) {
    return finding.severity == Severity::kError &&
           finding.message.find(kRefusal) != std::string::npos;
  });
}

struct Tally {
  size_t cases = 0, refused = 0;
  std::string differ;
};

void compare(const std::string& engine, const std::string& family, const std::string& method,
             const Json& answers, Tally& tally) {
  static const Json fused = test::engine_fixture("fused.json");
  const Json& list = fused.at("lists").at(method);
  for (const auto& [name, answer] : answers.items()) {
    // Its weights tell how its MLPs are named.
    if (family == "kimi_linear" && name == "up_proj") continue;
    const auto entry = fused.at("families").at(family).at(method).at(name).get<std::string>();
    VerifyOptions options;
    if (!list[2].get<std::string>().empty()) options.kv_cache_dtype = "fp8_e4m3";
    const VerifyReport report = PartCase(family, list, entry).subject.verify(engine, options);
    ++tally.cases;
    tally.refused += static_cast<size_t>(answer == "parts");
    // One of an expert's Linears leaves all experts in 16 bits: it stops at the scales of the
    // others.
    const bool is_refused = answer == "parts" || (answer == "refused" && name == "expert");
    // Of what it refuses for other reasons, the weights decide, which are not here.
    const bool is_same =
        is_refused ? refuses_parts(report) && !report.loads : !refuses_parts(report);
    if (!is_same)
      tally.differ += family + " " + method + " " + name + ": " + answer.get<std::string>() + "\n";
  }
}

}  // namespace

TEST_CASE("verify refuses the parts of a fused Linear that the engines refused") {
  const std::vector<Record> all = records();
  CHECK(all.size() >= 4);
  for (const Record& record : all) {
    Tally tally;
    for (const auto& [family, methods] : record.families.items())
      for (const auto& [method, answers] : methods.items())
        compare(record.engine, family, method, answers, tally);
    INFO(record.engine);
    CHECK(tally.cases > 100);
    CHECK(tally.refused > 50);
    CHECK(tally.differ == "");
  }
}

TEST_CASE("verify tells of a part in 16 bits that an engine takes for codes") {
  // SGLang's Llama names no fused Linears, so that it does not find K among what is excepted.
  EngineCase subject(test::kLlama);
  Json config = recorded_checkpoints().at("configs").at(recorded_checkpoints()
                                                            .at("families")
                                                            .at("llama")
                                                            .at("forms")
                                                            .at("weights")
                                                            .at(0)
                                                            .get<size_t>());
  config.at("ignore").push_back("model.layers.1.self_attn.k_proj");
  subject.quantize(config);
  for (const std::string layer : {"0", "1"}) {
    const std::string attention = "model.layers." + layer + ".self_attn.";
    for (const std::string name : {"q", "k", "v"}) {
      const std::string weight = attention + name + "_proj.weight";
      if (layer == "1" && name == "k")
        subject.add_bytes(weight, DType::kF16, {32, 64}, std::vector<std::byte>(32 * 64 * 2));
      else
        subject.add_bytes(weight, DType::kF8E4M3, {32, 64}, std::vector<std::byte>(32 * 64));
    }
    for (const char side : {'k', 'v'}) subject.add(attention + side + "_scale", 0.25f);
  }
  const auto told = [&](const std::string& engine) {
    const VerifyReport report = subject.verify(engine);
    const auto found = std::ranges::find_if(report.findings, [](const Finding& finding) {
      return finding.message.find("takes those of k_proj") != std::string::npos;
    });
    return found == report.findings.end() ? std::vector<int64_t>() : found->layers;
  };
  CHECK(told("sglang") == std::vector<int64_t>{1});
  CHECK(told("vllm").empty());
  CHECK(refuses_parts(subject.verify("vllm")));
}
