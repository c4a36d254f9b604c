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
  ROW("transformers", transformers)  \
  ROW("lightllm", lightllm)          \
  ROW("vllm-ascend", vllm_ascend)    \
  ROW("onnxruntime-genai", onnxruntime_genai)

#define KVCAL_DECLARE(name, engine) EngineRules engine##_engine(std::string_view version);
KVCAL_ENGINES(KVCAL_DECLARE)

namespace {

bool contains(const auto& texts, std::string_view text) {
  return std::ranges::find(texts, text) != texts.end();
}

bool contains_name(const MethodRules& rules, std::string_view name) {
  return std::ranges::find(rules.names, name, &NameRule::suffix) != rules.names.end();
}

/// An engine with the versions that were run. make: its rules of one of them.
EngineRules with_versions(std::string_view name, EngineRules (*make)(std::string_view)) {
  std::vector<EngineRules> run;
  std::vector<std::string_view> tables = answers_of(name);
  std::ranges::reverse(tables);
  for (const std::string_view table : tables) {
    const std::string_view version = table.substr(name.size() + 1);
    EngineRules& rules = run.emplace_back(make(version));
    rules.recorded = table;
    rules.versions.insert(rules.versions.begin(), version);
  }
  if (run.empty()) return make({});
  EngineRules newest = run.front();
  for (size_t i = 1; i < run.size(); ++i) {
    newest.versions.insert(newest.versions.begin() + static_cast<std::ptrdiff_t>(i),
                           run[i].versions.front());
    newest.other_versions.push_back(run[i]);
  }
  return newest;
}

/// Whether a text reads as the number of a release: "0.34", "0.34.0rc1".
bool is_release(std::string_view text) {
  const size_t digits = text.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos && text[digits] == '.';
}

/// Whether it is newer than all versions of the engine that were run.
bool is_newer(std::string_view version, const EngineRules& newest) {
  return !newest.recorded.empty() && is_release(version) && is_release(newest.versions.front()) &&
         comes_before(newest.versions.front(), version);
}

}  // namespace

const Registry<EngineRules>& engine_rules() {
#define KVCAL_ENTRY(name, engine) {name, with_versions(name, engine##_engine)},
  static const Registry<EngineRules> kTable{"engine", {KVCAL_ENGINES(KVCAL_ENTRY)}};
  return kTable;
}

std::vector<std::string> checkpoint_engines() {
  std::vector<std::string> names;
  for (const auto& [name, rules] : engine_rules().rows())
    if (!rules.is_asked_by_name) names.emplace_back(name);
  return names;
}

const EngineAnswers& EngineRules::seen() const {
  static const EngineAnswers kNone;
  return recorded.empty() ? kNone : engine_answers(recorded);
}

bool holds_names(const EngineRules& engine, const MissQuery& query) {
  const Miss* miss = find_miss(engine.seen(), query);
  if (miss && !goes_by_rules(miss->effect)) return false;
  const NameReading* names = find_names(engine.seen(), query.model_type, query.method);
  const MethodRules& rules = rules_for(engine, query.method);
  return std::ranges::all_of(query.rests, [&](const std::string& rest) {
    using enum NameOutcome;
    const NameOutcome outcome = names ? tried_name(*names, rest).outcome : kNotTried;
    return outcome == kNotTried ? contains_name(rules, rest)
                                : outcome == kLoaded || outcome == kLoadedWhenAsked;
  });
}

const MethodRules& rules_for(const EngineRules& engine, std::string_view method) {
  for (const MethodRules& rules : engine.methods)
    if (matches_method(rules.method, method)) return rules;
  return engine.otherwise;
}

bool takes_scales_file(const EngineRules& engine, std::string_view model_type) {
  return engine.scales_file.is_read &&
         (engine.scales_file.read || contains(engine.scales_file.model_types, model_type) ||
          contains(engine.seen().scales_file, model_type));
}

std::string file_argument(const ScalesFileRules& rules, const std::string& file) {
  return std::string(rules.argument) + (rules.argument.ends_with('=') ? "" : " ") + file;
}

const EngineRules& EngineChoice::rules() const {
  const EngineRules& newest = engine_rules().at(name);
  if (version == newest.versions.front()) return newest;
  const auto other = std::ranges::find(newest.other_versions, version,
                                       [](const auto& rules) { return rules.versions.front(); });
  return other == newest.other_versions.end() ? newest : *other;
}

std::string_view EngineChoice::run_on() const {
  const EngineRules& engine = rules();
  return version == engine.versions.front() ? engine.seen().date : std::string_view();
}

std::string EngineChoice::title() const {
  return std::string(rules().title) + " " + dated_version(version, run_on());
}

std::string dated_version(std::string_view version, std::string_view run_on) {
  return std::string(version) +
         (run_on.empty() ? std::string() : " (run " + std::string(run_on) + ")");
}

std::string EngineChoice::warning() const {
  return newer.empty() ? std::string()
                       : name + "@" + newer + ": not run with versions after " + version +
                             "; the answer is that of " + title();
}

std::vector<EngineChoice> versions_of(std::string_view name) {
  const EngineRules& newest = engine_rules().at(name);
  std::vector<EngineChoice> versions{{std::string(name), std::string(newest.versions.front())}};
  for (const EngineRules& other : newest.other_versions)
    versions.push_back({std::string(name), std::string(other.versions.front())});
  return versions;
}

EngineChoice choose_engine(std::string_view asked) {
  const size_t at = asked.find('@');
  const std::string name = engine_rules().name_of(asked.substr(0, at));
  const EngineRules& newest = engine_rules().at(name);
  const std::vector<std::string_view>& versions = newest.versions;
  if (at == std::string_view::npos) return {name, std::string(versions.front())};
  const std::string_view version = asked.substr(at + 1);
  if (contains(versions, version)) return {name, std::string(version)};
  for (const EngineChoice& known : versions_of(name))
    if (!version.empty() && known.rules().seen().release == version) return known;
  if (is_newer(version, newest)) return {name, std::string(versions.front()), std::string(version)};
  fail("unknown version '", version, "' of engine ", name, "; known are ",
       join(versions, ", ", [&](auto known) { return name + "@" + std::string(known); }));
}

}  // namespace kvcal
