#include "engines/engine_rules.h"

#include <algorithm>

#include "core/join.h"
#include "stored/json_member.h"

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
  ROW("lmdeploy", lmdeploy)          \
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

/// Value at "a.b": key b of the object a; null where it is none.
Json value_at(const Json& object, std::string_view path) {
  const size_t dot = path.find('.');
  const Json* value = member(object, path.substr(0, dot));
  if (!value) return nullptr;
  return dot == std::string_view::npos ? *value : value_at(*value, path.substr(dot + 1));
}

bool has_setting(const Json& config, const Setting& setting) {
  Json value = value_at(config, setting.key);
  if (value.is_null()) value = value_at(config.value("text_config", Json()), setting.key);
  const bool is_met = setting.value.empty() ? !value.is_null() && value != false
                                            : value == parse_json(setting.value);
  return is_met != setting.is_not;
}

bool contains(const ModelTypes& types, std::string_view type) {
  return std::ranges::find(types, type) != types.end();
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

ModelTypes types_run_everywhere_but(const ModelTypes& others) {
  ModelTypes types = kTypesRun;
  types.insert(types.end(), kLaterTypesRun.begin(), kLaterTypesRun.end());
  std::erase_if(types, [&](std::string_view type) { return contains(others, type); });
  return types;
}

ModelTypes wrappers_run_but(const ModelTypes& others) {
  ModelTypes types = kWrapperTypesRun;
  std::erase_if(types, [&](std::string_view type) { return contains(others, type); });
  return types;
}

ModelTypes with_wrappers_but(const ModelTypes& others, ModelTypes types) {
  const ModelTypes wrappers = wrappers_run_but(others);
  types.insert(types.end(), wrappers.begin(), wrappers.end());
  return types;
}

ModelTypes types_run_but(const ModelTypes& others) {
  ModelTypes types = types_run_everywhere_but({});
  types.insert(types.end(), kLatestTypesRun.begin(), kLatestTypesRun.end());
  std::erase_if(types, [&](std::string_view type) { return contains(others, type); });
  return types;
}

const Miss* find_miss(const EngineRules& engine, const MissSubject& subject) {
  const auto has_name = [&](std::string_view part) {
    return std::ranges::any_of(subject.names, [&](const std::string& name) {
      return part.ends_with('.') ? name.starts_with(part) : name.ends_with(part);
    });
  };
  const auto is_method = [&](std::string_view pattern) { return matches(pattern, subject.method); };
  const auto is_set = [&](const Setting& setting) { return has_setting(*subject.config, setting); };
  const auto it = std::ranges::find_if(engine.misses, [&](const Miss& miss) {
    return contains(miss.types, subject.model_type) &&
           (miss.methods.empty() || std::ranges::any_of(miss.methods, is_method)) &&
           (subject.has_weights || !miss.needs_weights) &&
           (miss.settings.empty() ||
            (subject.config && std::ranges::all_of(miss.settings, is_set))) &&
           (miss.names.empty() || std::ranges::any_of(miss.names, has_name));
  });
  return it == engine.misses.end() ? nullptr : &*it;
}

size_t num_engines_that_hold(const MissSubject& subject) {
  size_t count = 0;
  for (const auto& [name, engine] : engine_rules().rows()) {
    const auto reads = [&](const EngineFormat& row) {
      return row.method == subject.method && row.otherwise == Reads::kYes;
    };
    const Miss* miss = find_miss(engine, subject);
    if (std::ranges::any_of(engine.formats, reads) && contains(engine.tried, subject.model_type) &&
        (!miss || goes_by_rules(miss->effect)))
      ++count;
  }
  return count;
}

const EngineRules& EngineChoice::rules() const {
  const EngineRules& first = engine_rules().at(name);
  for (const EngineRules& other : first.other_versions)
    if (std::ranges::find(other.versions, version) != other.versions.end()) return other;
  return first;
}

EngineChoice choose_engine(std::string_view asked) {
  const size_t at = asked.find('@');
  const std::string name = engine_rules().name_of(asked.substr(0, at));
  const std::vector<std::string_view>& versions = engine_rules().at(name).versions;
  if (at == std::string_view::npos) return {name, std::string(versions.front())};
  const std::string_view version = asked.substr(at + 1);
  if (std::ranges::find(versions, version) == versions.end())
    fail("unknown version '", version, "' of engine ", name, "; known are ",
         join(versions, ", ", [&](auto known) { return name + "@" + std::string(known); }));
  return {name, std::string(version)};
}

namespace {

Reads reads_of(const EngineRules& engine, const EngineFormat& row, std::string_view model_type,
               const Miss* miss) {
  if (row.is_scales_file && engine.scales_file.is_read)
    return engine.scales_file.model_types.empty() ||
                   contains(engine.scales_file.model_types, model_type)
               ? Reads::kYes
               : Reads::kNo;
  if (row.otherwise == Reads::kNo || (miss && !goes_by_rules(miss->effect))) return Reads::kNo;
  return contains(engine.tried, model_type) ? row.otherwise : Reads::kNotKnown;
}

bool goes_beside_scales(const EngineRules& engine, std::string_view model_type) {
  const Miss* miss = find_miss(engine, {.model_type = model_type,
                                        .method = "compressed-tensors",
                                        .names = {kPlainScales.begin(), kPlainScales.end()}});
  return miss && miss->lacks_parameters;
}

}  // namespace

std::vector<EngineVerdict> engine_verdicts(std::string_view model_type, bool has_weights) {
  std::vector<EngineVerdict> verdicts;
  for (const auto& [name, engine] : engine_rules().rows())
    for (const EngineFormat& row : engine.formats) {
      const bool is_beside = row.is_scales_file && goes_beside_scales(engine, model_type);
      if (has_weights && row.method.empty() && !is_beside) continue;
      const Miss* miss = row.is_scales_file
                             ? nullptr
                             : find_miss(engine, {.model_type = model_type,
                                                  .method = row.method,
                                                  .names = {row.names.begin(), row.names.end()},
                                                  .has_weights = has_weights});
      verdicts.push_back(
          {.name = name,
           .engine = engine.title,
           .version = engine.versions.front(),
           .format = row.format,
           .reads = reads_of(engine, row, model_type, miss),
           .note = miss && miss->effect != MissEffect::kByRules ? miss->why : row.note,
           .goes_beside_scales = is_beside});
    }
  return verdicts;
}

}  // namespace kvcal
