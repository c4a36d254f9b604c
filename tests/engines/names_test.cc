// What verify says of scales under the names of other people and engines, in every family and
// beside the configurations of four methods, against what the engines' own code did:
// reference/engines_names.py runs the engines and records their answers.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/folder.h"
#include "engines/support/family_case.h"

using namespace kvcal;
using test::EngineCase;
using test::recorded_checkpoints;

namespace {

const Json& inputs() {
  static const Json all = test::engine_fixture("names.json");
  return all;
}

float value_of(int64_t layer, char side) {
  return static_cast<float>(layer + 3) / (side == 'v' ? 41.0f : 37.0f);
}

std::string replaced(std::string text, const std::string& mark, const std::string& by) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size()))
    text.replace(at, mark.size(), by);
  return text;
}

/// Attention modules by layer, with {} for the layer, as the scales of compressed-tensors name
/// them.
std::map<int64_t, std::string> modules_of(const std::string& family) {
  constexpr std::string_view kEnd = ".k_scale";
  std::map<int64_t, std::string> modules;
  const Json& forms = recorded_checkpoints().at("families").at(family).at("forms");
  for (const auto& [name, tensor] : forms.at("compressed-tensors").at(2).items())
    if (name.ends_with(kEnd))
      for (const Json& layer : tensor.at(2))
        modules[layer.get<int64_t>()] = name.substr(0, name.size() - kEnd.size());
  return modules;
}

/// A family's checkpoint with the configuration of a method and scales of the names of a template.
struct NameCase {
  EngineCase subject;
  std::map<int64_t, std::string> modules;
  bool is_shared;  ///< one scale for K and V

  NameCase(const std::string& family, const std::string& form, const std::string& name)
      : subject(test::recorded_config(family)),
        modules(modules_of(family)),
        is_shared(name.find("{s}") == std::string::npos) {
    add_configuration(subject,
                      recorded_checkpoints().at("families").at(family).at("forms").at(form));
    for (const auto& [layer, module] : modules) {
      const std::string number = std::to_string(layer), place = replaced(module, "{}", number);
      add_embedding(subject, place);
      const std::string outer = module.substr(0, module.find("{}")) + number;
      for (const char side : {'k', 'v'}) {
        const std::string filled = replaced(replaced(name, "{m}", place), "{l}", outer);
        subject.add(replaced(filled, "{s}", std::string(1, side)),
                    value_of(layer, is_shared ? 'k' : side));
      }
    }
  }

  /// The report in the words of the records.
  std::string answer(const VerifyReport& report) const {
    if (!report.loads) return "refused";
    if (!report.kv_cache_dtype.starts_with("fp8")) return "16-bit";
    size_t held = 0;
    for (const EngineLayer& layer : report.layers)
      held += static_cast<size_t>(is_held(layer.k, layer.layer, 'k')) +
              static_cast<size_t>(is_held(layer.v, layer.layer, is_shared ? 'k' : 'v'));
    return held == 0 ? "lost" : held == 2 * report.layers.size() ? "loaded" : "partly";
  }

 private:
  static bool is_held(const EngineScale& scale, int64_t layer, char side) {
    return !scale.source.empty() && std::ranges::all_of(scale.values, [&](float value) {
      return std::abs(value / value_of(layer, side) - 1.0f) < 0.01f;
    });
  }
};

std::string word_of(char letter) {
  static const std::map<char, std::string> kWords{
      {'L', "loaded"}, {'r', "loaded"},  {'P', "partly"},  {'O', "lost"},
      {'6', "16-bit"}, {'R', "refused"}, {'-', "refused"}, {'?', "refused"}};
  return kWords.at(letter);
}

/// An engine's answers, and how verify's compare.
struct Recorded {
  std::string engine;  ///< "vllm@0.33"
  Json families;
  size_t cells = 0;
  std::vector<std::string> differ = {};  ///< another answer
  std::vector<std::string> hidden = {};  ///< lost or refused, and verify finds no error
};

void compare(Recorded& record, const std::string& family, const std::string& method,
             const std::string& name, size_t index, const NameCase& subject) {
  const auto row = record.families.find(family);
  if (row == record.families.end() || !row->contains(method)) return;
  const std::string seen = word_of(row->at(method).get<std::string>().at(index));
  VerifyOptions options;
  if (!inputs().at("methods").at(method).at(1).get<std::string>().empty())
    options.kv_cache_dtype = "fp8_e4m3";
  const VerifyReport report = subject.subject.verify(record.engine, options);
  const std::string said = report.is_known ? subject.answer(report) : seen;
  const std::string line = family + " " + method + ", " + name + ": " + seen + ", verify: " + said;
  ++record.cells;
  if (said != seen) record.differ.push_back(line);
  const bool is_bad = seen != "loaded" && (seen != "16-bit" || !test::tells_switch(report));
  if (is_bad && report.is_known && !loses_scales(report)) record.hidden.push_back(line);
}

std::vector<Recorded> recorded_names() {
  std::vector<Recorded> all;
  for (const EmbeddedText& text : answer_tables()) {
    const Json table = parse_json(text.text);
    const std::string file = "names_" + table.at("records").get<std::string>() + ".json";
    if (!is_there(test::tests_folder() / "fixtures/engines" / file)) continue;
    all.push_back({.engine = table.at("engine").get<std::string>() + "@" +
                             table.at("version").get<std::string>(),
                   .families = test::engine_fixture(file).at("families")});
  }
  return all;
}

void compare_family(std::vector<Recorded>& records, const std::string& family, const Json& forms) {
  for (const auto& [method, form] : inputs().at("methods").items()) {
    if (!forms.contains(form.at(0).get<std::string>()) || !forms.contains("compressed-tensors"))
      continue;
    size_t index = 0;
    for (const auto& [name, pattern] : inputs().at("names").items()) {
      const NameCase subject(family, form.at(0), pattern);
      for (Recorded& record : records) compare(record, family, method, name, index, subject);
      ++index;
    }
  }
}

}  // namespace

TEST_CASE("verify says of names of others what the engines did", "[slow]") {
  // Families of one type that differ: a type has one answer. Of Qwen4-exp vLLM loads kv_scale for
  // K, as Aphrodite does of Gemma 4 beside one method.
  const std::set<std::string> known{
      "gemma4_26b compressed-tensors, shared: partly, verify: lost",
      "gemma4_31b compressed-tensors, shared: partly, verify: lost",
      "gemma4_e2b compressed-tensors, shared: partly, verify: lost",
      "gemma4_multimodal compressed-tensors, shared: partly, verify: lost",
      "gemma4_unified compressed-tensors, shared: partly, verify: lost",
      "qwen4_exp modelopt, shared: partly, verify: lost",
      "qwen4_exp quark, shared: partly, verify: lost",
      "qwen3_vl_moe_v5 compressed-tensors, experts: lost, verify: refused",
      "qwen3_vl_moe_v5 fp8, experts: lost, verify: refused",
      "qwen3_vl_moe_v5 modelopt, experts: lost, verify: refused",
      "qwen3_vl_moe_v5 quark, experts: lost, verify: refused"};
  std::vector<Recorded> records = recorded_names();
  for (const auto& [family, row] : recorded_checkpoints().at("families").items())
    compare_family(records, family, row.at("forms"));
  CHECK(records.size() >= 2);
  for (Recorded& record : records) {
    std::erase_if(record.differ, [&](const std::string& line) { return known.contains(line); });
    INFO(record.engine << ": " << record.cells << " cells");
    CHECK(record.cells > 7000);
    for (const std::string& line : record.hidden) UNSCOPED_INFO("no error: " << line);
    CHECK(record.hidden.empty());
    for (const std::string& line : record.differ) UNSCOPED_INFO(line);
    CHECK(record.differ.empty());
  }
}
