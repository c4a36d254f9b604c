#include "engines/engine_answers.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <initializer_list>
#include <set>
#include <utility>

#include "core/text.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

constexpr std::pair<std::string_view, MissEffect> kEffects[] = {
    {"ones", MissEffect::kOnes},
    {"ones when asked", MissEffect::kOnesWhenAsked},
    {"refused when asked", MissEffect::kRefusedWhenAsked},
    {"sixteen bits", MissEffect::kSixteenBits},
    {"by rules when asked", MissEffect::kByRulesWhenAsked},
    {"refused", MissEffect::kRefused},
    {"no model", MissEffect::kNoModel},
    {"refused without groups", MissEffect::kRefusedWithoutGroups},
    {"by rules", MissEffect::kByRules}};

std::vector<std::string> texts(const Json& object, std::string_view key) {
  return object.value(key, std::vector<std::string>());
}

Miss parse_miss(const Json& row) {
  const auto effect = std::ranges::find(kEffects, row.at("effect").get<std::string>(),
                                        [](const auto& entry) { return entry.first; });
  KVCAL_CHECK(effect != std::end(kEffects));
  Miss miss{.effect = effect->second,
            .why = row.value("why", ""),
            .methods = texts(row, "methods"),
            .names = texts(row, "names"),
            .settings = {},
            .needs_weights = row.value("needs_weights", false),
            .needs_attention = row.value("needs_attention", false),
            .lacks_parameters = row.value("lacks_parameters", false)};
  for (const Json& setting : row.value("settings", Json::array())) {
    const auto value = setting.find("value");
    miss.settings.push_back({setting.at("key"),
                             value == setting.end() ? std::nullopt : std::optional<Json>(*value),
                             setting.value("is_not", false)});
  }
  return miss;
}

NameReading parse_draft(const Json& row) {
  NameReading reading{.method = row.at("method"), .names = {}};
  for (const auto& [word, outcome] : {std::pair{"loaded", NameOutcome::kLoaded},
                                      {"dropped", NameOutcome::kDropped},
                                      {"refused", NameOutcome::kRefused}})
    if (row.contains(word)) reading.names[outcome] = texts(row, word);
  return reading;
}

/// row.seen: a letter for each of the names that were tried.
NameReading parse_names(const Json& row, const std::vector<std::string>& tried) {
  static const std::map<char, NameOutcome> kOutcomes{
      {'L', NameOutcome::kLoaded},           {'O', NameOutcome::kDropped},
      {'R', NameOutcome::kRefused},          {'l', NameOutcome::kLoadedWhenAsked},
      {'o', NameOutcome::kDroppedWhenAsked}, {'6', NameOutcome::kSixteenBits},
      {'?', NameOutcome::kNotTried}};
  NameReading reading{.method = row.at("method"), .names = {}};
  const std::string seen = row.at("seen");
  for (size_t i = 0; i < tried.size(); ++i)
    reading.names[kOutcomes.at(seen.at(i))].push_back(tried[i]);
  return reading;
}

/// like: the answers of the table that this one states its differences from; their misses stay.
EngineAnswers parse_answers(const Json& table, const EngineAnswers& like) {
  EngineAnswers answers = like;
  answers.release = table.at("recorded");
  answers.date = table.at("date");
  for (const auto& [name, row] : table.at("explanations").items())
    answers.misses.insert_or_assign(name, parse_miss(row));
  for (const std::string& type : texts(table, "not_run")) answers.types.erase(type);
  for (const Json& row : table.at("types")) {
    std::vector<const Miss*> misses;
    for (const std::string& name : texts(row, "explanations"))
      misses.push_back(&answers.misses.at(name));
    for (const std::string& type : texts(row, "of")) answers.types[type] = misses;
  }
  if (const auto inner = table.find("inner"); inner != table.end()) {
    answers.inner.clear();
    for (const Json& row : *inner) {
      const auto line = row.get<std::string>();
      const std::vector<std::string_view> words = split(line, ' ');
      answers.inner[std::string(words.front())] = {words.begin() + 1, words.end()};
    }
  }
  if (table.contains("scales_file")) answers.scales_file = texts(table, "scales_file");
  if (const auto drafts = table.find("drafts"); drafts != table.end()) {
    answers.drafts.clear();
    for (const auto& [type, row] : drafts->items()) answers.drafts[type] = parse_draft(row);
  }
  if (const auto names = table.find("names"); names != table.end()) {
    answers.names.clear();
    const std::vector<std::string> tried = texts(table, "tried");
    for (const Json& row : *names)
      for (const std::string& type : texts(row, "of"))
        answers.names[type].push_back(parse_names(row, tried));
  }
  for (const auto& [key, types] :
       {std::pair{"apart", &answers.apart}, {"unfused", &answers.unfused}})
    if (const auto parts = table.find(key); parts != table.end()) {
      types->clear();
      for (const auto& [part, row] : parts->items()) (*types)[part] = texts(*parts, part);
    }
  if (const auto strays = table.find("strays"); strays != table.end()) {
    answers.stop_at_strays = texts(*strays, "refused");
    answers.pass_strays = texts(*strays, "passed");
  }
  answers.runs_drafts = !answers.drafts.empty();
  return answers;
}

/// Every table, those that others are like first.
std::map<std::string_view, EngineAnswers> parse_tables() {
  std::map<std::string_view, EngineAnswers> tables;
  const std::function<const EngineAnswers&(std::string_view)> answers_in =
      [&](std::string_view name) -> const EngineAnswers& {
    if (const auto done = tables.find(name); done != tables.end()) return done->second;
    const auto text = std::ranges::find(answer_tables(), name, &EmbeddedText::stem);
    KVCAL_CHECK(text != answer_tables().end());
    const Json table = parse_json(text->text);
    const std::string like = table.value("like", "");
    return tables
        .emplace(text->stem(),
                 parse_answers(table, like.empty() ? EngineAnswers() : answers_in(like)))
        .first->second;
  };
  for (const EmbeddedText& text : answer_tables()) answers_in(text.stem());
  return tables;
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
  const bool is_met = setting.value ? value == *setting.value : !value.is_null() && value != false;
  return is_met != setting.is_not;
}

bool fits(const Miss& miss, const MissQuery& subject) {
  const auto has_name = [&](std::string_view part) {
    return std::ranges::any_of(subject.names, [&](const std::string& name) {
      return part.ends_with('.') ? name.starts_with(part) : name.ends_with(part);
    });
  };
  const auto is_method = [&](std::string_view pattern) {
    return matches_method(pattern, subject.method);
  };
  const auto is_set = [&](const Setting& setting) { return has_setting(*subject.config, setting); };
  return (miss.methods.empty() || std::ranges::any_of(miss.methods, is_method)) &&
         (subject.has_weights || !miss.needs_weights) &&
         (subject.has_attention || !miss.needs_attention) &&
         (miss.settings.empty() ||
          (subject.config && std::ranges::all_of(miss.settings, is_set))) &&
         (miss.names.empty() || std::ranges::any_of(miss.names, has_name));
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

bool comes_before(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view& text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const uint64_t first = number(a), second = number(b);
      if (first != second) return first < second;
      continue;
    }
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::vector<std::string_view> answers_of(std::string_view engine) {
  std::vector<std::string_view> tables;
  for (const EmbeddedText& table : answer_tables())
    if (table.stem().substr(0, table.stem().find('_')) == engine) tables.push_back(table.stem());
  std::ranges::sort(tables, comes_before);
  return tables;
}

const EngineAnswers& engine_answers(std::string_view table) {
  static const std::map<std::string_view, EngineAnswers> kTables = parse_tables();
  return kTables.at(table);
}

bool EngineAnswers::has_run(std::string_view model_type, std::string_view inner_type,
                            const Json& config) const {
  const auto known = inner.find(model_type);
  if (known == inner.end()) return has_run(model_type);
  const auto has_inner = [&](std::string_view type) {
    return std::ranges::find(known->second, type) != known->second.end();
  };
  const Json named = value_at(config, "text_config.model_type");
  return has_run(model_type) && (named.is_string() ? has_inner(named.get<std::string>())
                                                   : has_inner("-") || has_inner(inner_type));
}

TriedName tried_name(const NameReading& reading, std::string_view rest) {
  for (const auto& [outcome, names] : reading.names)
    for (const std::string& name : names) {
      if (name == rest) return {outcome};
      for (const char side : {'k', 'v'})
        if (replaced(name, "{}", {&side, 1}) == rest) return {outcome, side};
    }
  return {};
}

const NameReading* find_names(const EngineAnswers& answers, std::string_view model_type,
                              std::string_view method) {
  const auto type = answers.names.find(model_type);
  if (type == answers.names.end()) return nullptr;
  const auto it = std::ranges::find_if(type->second, [&](const NameReading& reading) {
    return matches_method(reading.method, method);
  });
  return it == type->second.end() ? nullptr : &*it;
}

namespace {

/// What was seen of the names of a checkpoint's scales, each outcome once.
std::set<NameOutcome> outcomes_of(const NameReading* names, const MissQuery& subject) {
  std::set<NameOutcome> outcomes;
  if (names)
    for (const std::string& rest : subject.rests) outcomes.insert(tried_name(*names, rest).outcome);
  return outcomes;
}

/// Whether the names of a checkpoint were seen to have another effect than the miss, which is of
/// more checkpoints.
bool is_contradicted(const Miss& miss, const std::set<NameOutcome>& outcomes,
                     const MissQuery& subject) {
  using enum NameOutcome;
  // Beginnings of names say what becomes of a whole checkpoint.
  const bool is_of_beginning =
      std::ranges::any_of(miss.names, [](const std::string& name) { return name.ends_with('.'); });
  if ((subject.has_weights && miss.needs_weights) || outcomes.empty() ||
      outcomes.contains(kNotTried) || is_of_beginning)
    return false;
  const auto has_any = [&](std::initializer_list<NameOutcome> some) {
    return std::ranges::any_of(some, [&](NameOutcome one) { return outcomes.contains(one); });
  };
  switch (miss.effect) {
    case MissEffect::kRefused:
      return !has_any({kRefused});
    case MissEffect::kOnes:
      return has_any({kLoaded, kRefused, kLoadedWhenAsked, kDroppedWhenAsked, kSixteenBits});
    case MissEffect::kOnesWhenAsked:
      return has_any({kLoaded, kRefused, kLoadedWhenAsked, kSixteenBits});
    case MissEffect::kRefusedWhenAsked:
      return has_any({kLoaded, kRefused, kLoadedWhenAsked});
    case MissEffect::kSixteenBits:
      return has_any({kLoaded, kRefused});
    case MissEffect::kByRulesWhenAsked:
      return has_any({kRefused});
    case MissEffect::kByRules:
      return has_any({kLoadedWhenAsked, kDroppedWhenAsked, kSixteenBits});
    case MissEffect::kNoModel:
    case MissEffect::kRefusedWithoutGroups:
      return false;
  }
  return false;
}

/// Where no miss says what the names do to the cache.
const Miss* miss_of_names(const std::set<NameOutcome>& outcomes, bool is_loaded_when_asked) {
  using enum NameOutcome;
  static const Miss kWhenAsked{.effect = MissEffect::kByRulesWhenAsked,
                               .why = "its cache keeps 16 bits unless asked for FP8"};
  static const Miss kNever{.effect = MissEffect::kSixteenBits,
                           .why = "its cache keeps 16 bits, whatever is asked for"};
  if (outcomes.contains(kRefused)) return nullptr;
  if (outcomes.contains(kSixteenBits)) return &kNever;
  return is_loaded_when_asked || outcomes.contains(kLoadedWhenAsked) ||
                 outcomes.contains(kDroppedWhenAsked)
             ? &kWhenAsked
             : nullptr;
}

}  // namespace

const Miss* find_miss(const EngineAnswers& answers, const MissQuery& subject) {
  const auto type = answers.types.find(subject.model_type);
  if (type == answers.types.end()) return nullptr;
  const auto outcomes =
      outcomes_of(find_names(answers, subject.model_type, subject.method), subject);
  bool is_loaded_when_asked = false;
  for (const Miss* miss : type->second) {
    if (!fits(*miss, subject)) continue;
    if (!is_contradicted(*miss, outcomes, subject)) return miss;
    is_loaded_when_asked |=
        miss->effect == MissEffect::kOnesWhenAsked && outcomes.contains(NameOutcome::kLoaded);
  }
  return miss_of_names(outcomes, is_loaded_when_asked);
}

bool matches_method(std::string_view pattern, std::string_view method) {
  if (pattern.ends_with('*')) return method.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == method;
}

}  // namespace kvcal
