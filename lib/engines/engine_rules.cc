#include "engines/engine_rules.h"

#include <algorithm>

#include "core/text.h"

namespace kvcal {

// One row an engine: a file of engines/ defines <name>_engine(version).
#define KVCAL_ENGINES(ROW)           \
  ROW("vllm", vllm)                  \
  ROW("sglang", sglang)              \
  ROW("tgi", tgi)                    \
  ROW("tgi-branch", tgi_branch)      \
  ROW("aphrodite", aphrodite)        \
  ROW("aphrodite-0.6", aphrodite_06) \
  ROW("trtllm", trtllm)              \
  ROW("lmdeploy", lmdeploy)          \
  ROW("transformers", transformers)

#define KVCAL_DECLARE(name, engine) EngineRules engine##_engine(std::string_view version);
KVCAL_ENGINES(KVCAL_DECLARE)

namespace {

bool contains(const auto& texts, std::string_view text) {
  return std::ranges::find(texts, text) != texts.end();
}

/// An engine with the versions that were run. make: its rules of one of them.
EngineRules with_versions(std::string_view name, EngineRules (*make)(std::string_view)) {
  std::vector<EngineRules> run;
  for (const std::string_view table : answers_of(name)) {
    const std::string_view version = table.substr(name.size() + 1);
    EngineRules& rules = run.emplace_back(make(version));
    rules.recorded = table;
    rules.versions.insert(rules.versions.begin(), version);
  }
  if (run.empty()) return make({});
  EngineRules first = run.front();
  for (size_t i = 1; i < run.size(); ++i) {
    first.versions.insert(first.versions.begin() + static_cast<std::ptrdiff_t>(i),
                          run[i].versions.front());
    first.other_versions.push_back(run[i]);
  }
  return first;
}

}  // namespace

const Registry<EngineRules>& engine_rules() {
#define KVCAL_ENTRY(name, engine) {name, with_versions(name, engine##_engine)},
  static const Registry<EngineRules> kTable{"engine", {KVCAL_ENGINES(KVCAL_ENTRY)}};
  return kTable;
}

const EngineAnswers& EngineRules::seen() const {
  static const EngineAnswers kNone;
  return recorded.empty() ? kNone : engine_answers(recorded);
}

const MethodRules& rules_for(const EngineRules& engine, std::string_view method) {
  for (const MethodRules& rules : engine.methods)
    if (matches_method(rules.method, method)) return rules;
  return engine.otherwise;
}

bool takes_scales_file(const EngineRules& engine, std::string_view model_type) {
  return engine.scales_file.is_read && (contains(engine.scales_file.model_types, model_type) ||
                                        contains(engine.seen().scales_file, model_type));
}

const EngineRules& EngineChoice::rules() const {
  const EngineRules& first = engine_rules().at(name);
  const auto other = std::ranges::find_if(first.other_versions, [&](const EngineRules& rules) {
    return contains(rules.versions, version);
  });
  return other == first.other_versions.end() ? first : *other;
}

EngineChoice choose_engine(std::string_view asked) {
  const size_t at = asked.find('@');
  const std::string name = engine_rules().name_of(asked.substr(0, at));
  const std::vector<std::string_view>& versions = engine_rules().at(name).versions;
  if (at == std::string_view::npos) return {name, std::string(versions.front())};
  const std::string_view version = asked.substr(at + 1);
  if (!contains(versions, version))
    fail("unknown version '", version, "' of engine ", name, "; known are ",
         join(versions, ", ", [&](auto known) { return name + "@" + std::string(known); }));
  return {name, std::string(version)};
}

}  // namespace kvcal
