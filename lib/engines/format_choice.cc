#include "engines/format_choice.h"

#include <algorithm>

#include "core/join.h"
#include "engines/engine_rules.h"

namespace kvcal {
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
