#include "engines/engine_rules.h"

#include <algorithm>

namespace kvcal {

// One row an engine: engines/<name>.cc defines <name>_engine(), and further versions beside it.
#define KVCAL_ENGINES(ROW)           \
  ROW("vllm", vllm)                  \
  ROW("sglang", sglang)              \
  ROW("tgi", tgi)                    \
  ROW("tgi-branch", tgi_branch)      \
  ROW("aphrodite", aphrodite)        \
  ROW("aphrodite-0.6", aphrodite_06) \
  ROW("trtllm", trtllm)              \
  ROW("transformers", transformers)

#define KVCAL_DECLARE(name, engine) EngineRules engine##_engine();
KVCAL_ENGINES(KVCAL_DECLARE)

const Registry<EngineRules>& engine_rules() {
#define KVCAL_ENTRY(name, engine) {name, engine##_engine()},
  static const Registry<EngineRules> kTable{"engine", {KVCAL_ENGINES(KVCAL_ENTRY)}};
  return kTable;
}

namespace {

bool matches(std::string_view pattern, std::string_view method) {
  if (pattern.ends_with('*')) return method.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == method;
}

}  // namespace

const MethodRules& rules_for(const EngineRules& engine, std::string_view method) {
  for (const MethodRules& rules : engine.methods)
    if (matches(rules.method, method)) return rules;
  return engine.otherwise;
}

std::string_view name_of(Reads reads) {
  switch (reads) {
    case Reads::kYes:
      return "yes";
    case Reads::kNo:
      return "no";
    case Reads::kNotKnown:
      return "not known";
  }
  return "";
}

bool EngineFormat::reads_type(std::string_view model_type) const {
  return std::ranges::find(reads, model_type) != reads.end();
}

const Miss* EngineFormat::miss(std::string_view model_type) const {
  auto it = std::ranges::find(misses, model_type, &Miss::model_type);
  if (it == misses.end() && !reads_type(model_type))
    it = std::ranges::find(misses, "*", &Miss::model_type);
  return it == misses.end() ? nullptr : &*it;
}

std::vector<EngineVerdict> engine_verdicts(std::string_view model_type) {
  std::vector<EngineVerdict> verdicts;
  for (const auto& [name, engine] : engine_rules().rows())
    for (const EngineFormat& row : engine.formats) {
      const Miss* miss = row.miss(model_type);
      verdicts.push_back({.engine = engine.title,
                          .version = row.version,
                          .format = row.format,
                          .reads = miss                         ? Reads::kNo
                                   : row.reads_type(model_type) ? Reads::kYes
                                                                : Reads::kNotKnown,
                          .note = miss ? miss->why : row.note});
    }
  return verdicts;
}

}  // namespace kvcal
