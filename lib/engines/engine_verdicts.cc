#include "engines/engine_verdicts.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/text.h"
#include "family/architecture.h"
#include "family/wrapper.h"

namespace kvcal {

std::string_view name_of(Reads reads) {
  constexpr std::string_view kWords[] = {"yes", "no", "not known"};
  return kWords[static_cast<size_t>(reads)];
}

namespace {

Reads reads_of(const EngineRules& engine, const EngineFormat& row, std::string_view model_type,
               const Miss* miss) {
  if (row.is_scales_file && engine.scales_file.is_read)
    return takes_scales_file(engine, model_type) ? Reads::kYes : Reads::kNo;
  if (row.otherwise == Reads::kNo || (miss && !goes_by_rules(miss->effect))) return Reads::kNo;
  return engine.seen().has_run(model_type) ? row.otherwise : Reads::kNotKnown;
}

bool goes_beside_scales(const EngineRules& engine, std::string_view model_type) {
  const Miss* miss =
      find_miss(engine.seen(), {.model_type = model_type,
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
      const Miss* miss =
          row.is_scales_file
              ? nullptr
              : find_miss(engine.seen(), {.model_type = model_type,
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

namespace {

/// "vLLM 0.32".
std::string engine_title(const EngineVerdict& verdict) {
  return std::string(verdict.engine) + " " + std::string(verdict.version);
}

/// The formats that one engine reads for a family: "compressed-tensors, quark", "none" or "not
/// known".
std::string formats_text(const std::vector<EngineVerdict>& verdicts, std::string_view engine) {
  std::vector<std::string_view> read;
  bool is_known = true;
  for (const EngineVerdict& verdict : verdicts) {
    if (engine_title(verdict) != engine) continue;
    if (verdict.reads == Reads::kYes) read.push_back(verdict.format);
    is_known = is_known && verdict.reads != Reads::kNotKnown;
  }
  if (!read.empty()) return join(read, ", ");
  return is_known ? "none" : "not known";
}

/// The engines that have verdicts, in their order.
std::vector<std::string> engine_titles() {
  std::vector<std::string> titles;
  for (const EngineVerdict& verdict : engine_verdicts("llama"))
    if (std::ranges::find(titles, engine_title(verdict)) == titles.end())
      titles.push_back(engine_title(verdict));
  return titles;
}

}  // namespace

Json verdict_json(const EngineVerdict& verdict) {
  return {{"engine", verdict.engine},
          {"version", verdict.version},
          {"format", verdict.format},
          {"reads", name_of(verdict.reads)},
          {"note", verdict.note}};
}

std::string engines_markdown() {
  std::ostringstream out;
  const std::vector<std::string> titles = engine_titles();
  out << "| `model_type` | " << join(titles, " | ") << " |\n| ---";
  for (size_t i = 0; i < titles.size(); ++i) out << " | ---";
  out << " |\n";
  std::vector<std::string_view> types;
  for (const Architecture& architecture : architectures())
    types.insert(types.end(), architecture.model_types.begin(), architecture.model_types.end());
  for (const Wrapper& wrapper : wrappers()) types.push_back(wrapper.model_type);
  for (const std::string_view type : types) {
    const auto verdicts = engine_verdicts(type);
    out << "| `" << type << "`";
    for (const std::string& title : titles) out << " | " << formats_text(verdicts, title);
    out << " |\n";
  }
  return out.str();
}

Json engines_json(const std::string& model_type) {
  Json engines = Json::array();
  if (model_type.empty()) {
    for (const auto& [name, rules] : engine_rules().rows()) {
      Json types = Json::array();
      for (const auto& [type, misses] : rules.seen().types) types.push_back(type);
      engines.push_back({{"name", name},
                         {"title", rules.title},
                         {"versions", rules.versions},
                         {"model_types", types}});
    }
    return engines;
  }
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    engines.push_back(verdict_json(verdict));
  return engines;
}

std::string engines_text(const std::string& model_type) {
  if (model_type.empty()) {
    TextTable table({"engine", "versions", "model types run"});
    for (const auto& [name, rules] : engine_rules().rows())
      table.add({name, join(rules.versions, ", "), std::to_string(rules.seen().types.size())});
    return table.text();
  }
  std::ostringstream out;
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    out << std::left << std::setw(42) << engine_title(verdict) + ", " + std::string(verdict.format)
        << name_of(verdict.reads) << ": " << verdict.note << '\n';
  return out.str();
}

namespace {

/// Formats that one engine reads, the one it reads best first.
struct Wanted {
  EngineChoice engine;
  std::vector<std::string> formats;
};

/// A file of scales lies beside a checkpoint where it can: its own scales serve other engines.
std::string format_word(const EngineVerdict& verdict) {
  return verdict.goes_beside_scales ? "compressed-tensors+" + std::string(verdict.format)
                                    : std::string(verdict.format);
}

std::vector<EngineVerdict> verdicts_of(const EngineChoice& engine, std::string_view model_type,
                                       bool has_weights) {
  std::vector<EngineVerdict> verdicts = engine_verdicts(model_type, has_weights);
  std::erase_if(verdicts,
                [&](const EngineVerdict& verdict) { return verdict.name != engine.name; });
  std::stable_partition(verdicts.begin(), verdicts.end(), [&](const EngineVerdict& verdict) {
    return verdict.format == engine.rules().format;
  });
  return verdicts;
}

/// "vLLM, transformers": the engines that read a format for models of the type.
std::string other_readers(std::string_view model_type, bool has_weights) {
  std::vector<std::string> readers;
  for (const EngineVerdict& verdict : engine_verdicts(model_type, has_weights)) {
    const std::string reader(verdict.engine);
    if (verdict.reads == Reads::kYes && std::ranges::find(readers, reader) == readers.end())
      readers.push_back(reader);
  }
  return readers.empty() ? "no engine reads any" : "read by " + join(readers, ", ");
}

Wanted wanted_by(const EngineChoice& engine, std::string_view model_type, bool has_weights,
                 Diagnostics& diagnostics) {
  const std::vector<EngineVerdict> verdicts = verdicts_of(engine, model_type, has_weights);
  Wanted wanted{.engine = engine, .formats = {}};
  for (const EngineVerdict& verdict : verdicts)
    if (verdict.reads == Reads::kYes) wanted.formats.push_back(format_word(verdict));
  if (!wanted.formats.empty()) return wanted;
  const auto unknown = std::ranges::find(verdicts, Reads::kNotKnown, &EngineVerdict::reads);
  const std::string title = std::string(engine.rules().title) + " " + engine.version;
  if (unknown == verdicts.end())
    fail("--for ", engine.name, ": ", title, " uses the KV scales of no format for models of type ",
         model_type, verdicts.empty() ? "" : ": " + std::string(verdicts.front().note),
         "; they are ", other_readers(model_type, has_weights));
  diagnostics.warn("--for " + engine.name + ": whether " + title +
                   " uses the KV scales of models of type " + std::string(model_type) +
                   " is not known; " + format_word(*unknown) + " is its usual format");
  wanted.formats.push_back(format_word(*unknown));
  return wanted;
}

/// Whether one of the formats joined in the word, or the whole, is one that the engine reads.
bool takes(const Wanted& wanted, const std::string& word) {
  return std::ranges::any_of(wanted.formats, [&](const std::string& format) {
    return word == format || word.starts_with(format + "+");
  });
}

}  // namespace

std::vector<std::string> formats_for(const std::vector<std::string>& engines,
                                     std::string_view model_type, bool has_weights,
                                     Diagnostics& diagnostics) {
  std::vector<Wanted> unserved;
  for (const std::string& engine : engines)
    unserved.push_back(wanted_by(choose_engine(engine), model_type, has_weights, diagnostics));
  std::vector<std::string> chosen;
  while (!unserved.empty()) {
    const std::string* best = nullptr;
    std::ptrdiff_t most = 0;
    for (const Wanted& wanted : unserved)
      for (const std::string& format : wanted.formats) {
        const auto count = std::ranges::count_if(
            unserved, [&](const Wanted& other) { return takes(other, format); });
        if (count > most) best = &format;
        most = std::max(most, count);
      }
    chosen.push_back(*best);
    std::erase_if(unserved, [&](const Wanted& wanted) { return takes(wanted, chosen.back()); });
  }
  return chosen;
}

}  // namespace kvcal
