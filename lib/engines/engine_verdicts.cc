#include "engines/engine_verdicts.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <iterator>
#include <optional>
#include <sstream>

#include "core/text.h"
#include "engines/scale_loading.h"
#include "family/architecture.h"
#include "family/wrapper.h"
#include "stored/quark_names.h"

namespace kvcal {

std::string_view name_of(Reads reads) {
  constexpr std::string_view kWords[] = {"yes", "no", "not known"};
  return kWords[static_cast<size_t>(reads)];
}

namespace {

Reads reads_of(const EngineRules& engine, const EngineFormat& row, const MissQuery& query,
               const Miss* miss) {
  if (row.is_scales_file && engine.scales_file.is_read)
    return !takes_scales_file(engine, query.model_type) ? Reads::kNo
           : engine.scales_file.read                    ? Reads::kNotKnown  // of models it runs
                                                        : Reads::kYes;
  if (row.otherwise == Reads::kNo || (miss && !goes_by_rules(miss->effect))) return Reads::kNo;
  if (!engine.seen().has_run(query.model_type)) return Reads::kNotKnown;
  return row.names.empty() || holds_names(engine, query) ? row.otherwise : Reads::kNo;
}

/// A checkpoint of ours in that format.
MissQuery query_of(const EngineFormat& row, std::string_view model_type, bool has_weights) {
  std::vector<std::string> names(row.names.begin(), row.names.end());
  if (row.format == "quark") {
    const KvScaleNames& own = quark_names_of_type(model_type, has_weights);
    names = {std::string(own.k), std::string(own.v)};
  }
  return {.model_type = model_type,
          .method = row.method,
          .names = names,
          .rests = names,
          .has_weights = has_weights};
}

bool goes_beside_scales(const EngineRules& engine, std::string_view model_type) {
  const Miss* miss =
      find_miss(engine.seen(), {.model_type = model_type,
                                .method = "compressed-tensors",
                                .names = {kPlainScales.begin(), kPlainScales.end()}});
  return miss && miss->lacks_parameters;
}

}  // namespace

std::vector<EngineVerdict> engine_verdicts(const EngineChoice& choice, std::string_view model_type,
                                           bool has_weights) {
  std::vector<EngineVerdict> verdicts;
  const EngineRules& engine = choice.rules();
  const std::string_view name = engine_rules().name_of(choice.name),
                         version = *std::ranges::find(engine.versions, choice.version);
  for (const EngineFormat& row : engine.formats) {
    const bool is_beside = row.is_scales_file && goes_beside_scales(engine, model_type);
    if (has_weights && row.method.empty() && !is_beside && !engine.scales_file.read) continue;
    const MissQuery query = query_of(row, model_type, has_weights);
    const Miss* miss = row.is_scales_file ? nullptr : find_miss(engine.seen(), query);
    const Reads reads = reads_of(engine, row, query, miss);
    const bool is_told = miss && miss->effect != MissEffect::kByRules;
    const bool is_of_names =
        !is_told && reads == Reads::kNo && row.otherwise == Reads::kYes && !row.is_scales_file;
    verdicts.push_back({.name = name,
                        .engine = engine.title,
                        .version = version,
                        .run_on = choice.run_on(),
                        .format = row.format,
                        .reads = reads,
                        .note = is_told       ? std::string_view(miss->why)
                                : is_of_names ? "its loader does not take the names of the scales"
                                              : row.note,
                        .goes_beside_scales = is_beside,
                        .is_of_int8 = row.is_of_int8});
  }
  return verdicts;
}

std::vector<EngineVerdict> engine_verdicts(std::string_view model_type, bool has_weights) {
  std::vector<EngineVerdict> verdicts;
  for (const std::string& name : engine_rules().names())
    std::ranges::move(engine_verdicts(choose_engine(name), model_type, has_weights),
                      std::back_inserter(verdicts));
  return verdicts;
}

namespace {

/// With the format first that the engine reads best.
std::vector<EngineVerdict> best_first(const EngineChoice& engine, std::string_view model_type,
                                      bool has_weights) {
  std::vector<EngineVerdict> verdicts = engine_verdicts(engine, model_type, has_weights);
  std::stable_partition(verdicts.begin(), verdicts.end(), [&](const EngineVerdict& verdict) {
    return verdict.format == engine.rules().format;
  });
  return verdicts;
}

}  // namespace

std::string_view read_format(const EngineChoice& choice, std::string_view model_type,
                             bool has_weights) {
  if (choice.rules().formats.empty()) return choice.rules().format;
  const std::vector<EngineVerdict> verdicts = best_first(choice, model_type, has_weights);
  const auto first = [&](Reads reads) {
    const auto verdict = std::ranges::find_if(verdicts, [&](const EngineVerdict& one) {
      // It is a format of FP8 weights.
      return one.reads == reads && (has_weights || one.format != "fp8");
    });
    return verdict == verdicts.end() ? std::string_view() : verdict->format;
  };
  const std::string_view read = first(Reads::kYes);
  return read.empty() ? first(Reads::kNotKnown) : read;
}

namespace {

bool has_reads(const std::vector<EngineVerdict>& verdicts, Reads reads) {
  return std::ranges::find(verdicts, reads, &EngineVerdict::reads) != verdicts.end();
}

/// The newest version of an engine that reads a format; nullopt: none does.
std::optional<EngineChoice> newest_reader(std::string_view name, std::string_view model_type,
                                          bool has_weights = false) {
  for (const EngineChoice& version : versions_of(name))
    if (has_reads(engine_verdicts(version, model_type, has_weights), Reads::kYes)) return version;
  return std::nullopt;
}

/// The formats that an engine reads for a family: "compressed-tensors, quark", "not known", or
/// "none", with what an older version reads: "none; 5.23: compressed-tensors".
std::string formats_text(const EngineChoice& engine, std::string_view model_type) {
  std::vector<EngineVerdict> verdicts = engine_verdicts(engine, model_type);
  std::erase_if(verdicts, std::mem_fn(&EngineVerdict::is_of_int8));
  std::vector<std::string_view> read;
  for (const EngineVerdict& verdict : verdicts)
    if (verdict.reads == Reads::kYes) read.push_back(verdict.format);
  if (!read.empty()) return join(read, ", ");
  if (has_reads(verdicts, Reads::kNotKnown)) return "not known";
  const auto older = newest_reader(engine.name, model_type);
  return older ? "none; " + older->version + ": " + formats_text(*older, model_type) : "none";
}

/// The newest versions of those that have verdicts and are not asked by name alone.
std::vector<EngineChoice> engines_with_formats() {
  std::vector<EngineChoice> engines;
  for (const std::string& name : checkpoint_engines())
    if (EngineChoice engine = choose_engine(name); !engine.rules().formats.empty())
      engines.push_back(std::move(engine));
  return engines;
}

Json run_on_json(std::string_view run_on) {
  return run_on.empty() ? Json() : Json(run_on);
}

}  // namespace

std::string title_of(const EngineVerdict& verdict) {
  return std::string(verdict.engine) + " " + dated_version(verdict.version, verdict.run_on);
}

Json verdict_json(const EngineVerdict& verdict) {
  return {{"engine", verdict.engine},
          {"version", verdict.version},
          {"run_on", run_on_json(verdict.run_on)},
          {"format", verdict.format},
          {"reads", name_of(verdict.reads)},
          {"note", verdict.note}};
}

std::string engines_markdown() {
  std::ostringstream out;
  const std::vector<EngineChoice> engines = engines_with_formats();
  out << "| `model_type` | " << join(engines, " | ", [](const auto& one) { return one.title(); })
      << " |\n| ---";
  for (size_t i = 0; i < engines.size(); ++i) out << " | ---";
  out << " |\n";
  std::vector<std::string_view> types;
  for (const Architecture& architecture : architectures())
    types.insert(types.end(), architecture.model_types.begin(), architecture.model_types.end());
  for (const Wrapper& wrapper : wrappers()) types.push_back(wrapper.model_type);
  for (const std::string_view type : types) {
    out << "| `" << type << "`";
    for (const EngineChoice& engine : engines) out << " | " << formats_text(engine, type);
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
                         {"run_on", run_on_json(choose_engine(name).run_on())},
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
    TextTable table({"engine", "versions", "run on", "model types run"});
    for (const auto& [name, rules] : engine_rules().rows()) {
      const std::string_view date = choose_engine(name).run_on();
      table.add({name, join(rules.versions, ", "), std::string(date.empty() ? "not run" : date),
                 std::to_string(rules.seen().types.size())});
    }
    return table.text();
  }
  std::ostringstream out;
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    out << std::left << std::setw(56) << title_of(verdict) + ", " + std::string(verdict.format)
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

/// "vllm, transformers@5.23": the engines that read a format for models of the type, with the
/// newest version that does where it is not the newest of all.
std::string other_readers(std::string_view model_type, bool has_weights) {
  std::vector<std::string> readers;
  for (const std::string& name : engine_rules().names())
    if (const auto reader = newest_reader(name, model_type, has_weights))
      readers.push_back(
          reader->version == choose_engine(name).version ? name : name + "@" + reader->version);
  return readers.empty() ? "no engine reads any" : "read by " + join(readers, ", ");
}

/// The verdicts on a checkpoint, with the format first that the engine reads best.
std::vector<EngineVerdict> verdicts_on(const EngineChoice& engine,
                                       const PlannedCheckpoint& planned) {
  std::vector<EngineVerdict> verdicts = best_first(engine, planned.model_type, planned.has_weights);
  if (!planned.config) return verdicts;
  if (const std::string refusal = model_refusal(engine.rules(), *planned.config, *planned.json);
      !refusal.empty())
    fail("--for ", engine.name, ": ", engine.title(), " refuses the model: ", refusal);
  if (!engine.rules().seen().has_run(planned.model_type, planned.config->model_type, *planned.json))
    for (EngineVerdict& verdict : verdicts)
      if (verdict.reads == Reads::kYes) verdict.reads = Reads::kNotKnown;
  return verdicts;
}

Wanted wanted_by(const EngineChoice& engine, const PlannedCheckpoint& planned,
                 Diagnostics& diagnostics) {
  const std::string_view model_type = planned.model_type;
  const std::vector<EngineVerdict> verdicts = verdicts_on(engine, planned);
  Wanted wanted{.engine = engine, .formats = {}};
  for (const EngineVerdict& verdict : verdicts)
    if (verdict.reads == Reads::kYes) wanted.formats.push_back(format_word(verdict));
  if (!wanted.formats.empty()) return wanted;
  const auto unknown = std::ranges::find(verdicts, Reads::kNotKnown, &EngineVerdict::reads);
  const std::string title = engine.title();
  if (unknown == verdicts.end())
    fail("--for ", engine.name, ": ", title, " uses the KV scales of no format for models of type ",
         model_type, verdicts.empty() ? "" : ": " + std::string(verdicts.front().note),
         "; they are ", other_readers(model_type, planned.has_weights));
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
                                     const PlannedCheckpoint& planned, Diagnostics& diagnostics) {
  std::vector<Wanted> unserved;
  for (const std::string& engine : engines)
    unserved.push_back(wanted_by(choose_engine(engine), planned, diagnostics));
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
