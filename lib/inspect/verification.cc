#include "inspect/verification.h"

#include <algorithm>
#include <sstream>

#include "core/text.h"
#include "engines/engine_rules.h"
#include "stored/weights.h"

namespace kvcal {

std::vector<std::string> engine_choice(const std::vector<std::string>& asked) {
  std::vector<std::string> names;
  for (const std::string& name : asked) {
    if (name == "all") return engine_rules().names();
    choose_engine(name);  // fails with the known names
    names.push_back(name);
  }
  return names;
}

Verdict verdict_of(const std::vector<VerifyReport>& reports) {
  Verdict verdict;
  for (const VerifyReport& report : reports)
    (loses_scales(report)           ? verdict.losing
     : !holds_scales(report)        ? verdict.empty
     : !report.is_known             ? verdict.unknown
     : !has_quantized_cache(report) ? verdict.idle
                                    : verdict.holding)
        .push_back(report.engine);
  return verdict;
}

std::string problem_of(const Verdict& verdict, const VerifyOptions& options, bool allow_16_bit) {
  if (!verdict.losing.empty()) return "scales would be lost in " + join(verdict.losing, ", ");
  const bool needs_scales =
      options.kv_cache_dtype != "bfloat16" && options.kv_cache_dtype != "float16";
  if (verdict.empty.empty() || allow_16_bit || !needs_scales) return "";
  return "holds no scale for " + join(verdict.empty, ", ") +
         "; --allow-16-bit says that none is meant";
}

std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options) {
  const std::vector<std::string> names = engine_choice(engines);
  std::vector<VerifyReport> reports;
  for (const std::string& engine : names)
    reports.push_back(verify_checkpoint(checkpoint, engine, options));
  return reports;
}

namespace {

std::string held_text(const EngineScale& scale) {
  if (scale.values.empty()) return "?";
  if (scale.values.size() == 1) return short_float(scale.values[0]);
  return std::to_string(scale.values.size()) + " values";
}

/// One source for both where they are the same.
std::string held_source(const EngineLayer& held) {
  if (held.is_16_bit) return "16 bits";
  const auto text = [](const EngineScale& scale) {
    return scale.source.empty() ? std::string("default") : scale.source;
  };
  const std::string k = text(held.k), v = text(held.v);
  return k == v ? k : k + ", " + v;
}

std::string finding_layers(const Finding& finding) {
  if (finding.layers.empty()) return "";
  return ", " + layer_range_text(finding.layers);
}

/// The least and the largest of a side's scales: "0.01 to 0.2"; "?" where none is known.
std::string spread_text(const std::vector<EngineLayer>& layers, EngineScale EngineLayer::*side) {
  std::vector<double> all;
  for (const EngineLayer& held : layers)
    all.insert(all.end(), (held.*side).values.begin(), (held.*side).values.end());
  if (all.empty()) return "?";
  const auto [least, largest] = std::ranges::minmax(all);
  return short_float(least) + " to " + short_float(largest);
}

/// The layer's source with '*' for its number.
std::string source_pattern(const EngineLayer& held) {
  return replaced(held_source(held), '.' + std::to_string(held.layer) + '.', ".*.");
}

/// A row for the layers of one source; a table of every layer where that is short.
std::string held_layers_text(const std::vector<EngineLayer>& layers, bool is_summary) {
  if (!is_summary) {
    TextTable table({"layer", "k_scale", "v_scale", "source"});
    for (const EngineLayer& held : layers)
      table.add(
          {std::to_string(held.layer), held_text(held.k), held_text(held.v), held_source(held)});
    return table.text();
  }
  std::vector<std::pair<std::string, std::vector<EngineLayer>>> sources;
  for (const EngineLayer& held : layers) {
    const std::string source = source_pattern(held);
    auto found = std::ranges::find(sources, source, [](const auto& one) { return one.first; });
    if (found == sources.end()) found = sources.insert(sources.end(), {source, {}});
    found->second.push_back(held);
  }
  TextTable table({"layers", "k_scale", "v_scale", "source"});
  for (const auto& [source, held] : sources)
    table.add({std::to_string(held.size()), spread_text(held, &EngineLayer::k),
               spread_text(held, &EngineLayer::v), source});
  return table.text();
}

}  // namespace

std::string verification_text(const VerifyReport& report, const std::string& checkpoint,
                              bool is_summary) {
  std::ostringstream out;
  out << EngineChoice{report.engine, report.version}.title() << ", " << checkpoint << ": "
      << (report.loads ? "KV cache " + (report.kv_cache_dtype == "auto" ? std::string("of 16 bits")
                                                                        : report.kv_cache_dtype)
                       : std::string("refused"))
      << '\n';
  if (!report.layers.empty()) out << held_layers_text(report.layers, is_summary);
  for (const Finding& finding : report.findings) {
    out << name_of(finding.severity) << finding_layers(finding) << ": " << finding.message << '\n';
    if (!finding.remedy.empty()) out << "  remedy: " << finding.remedy << '\n';
  }
  return out.str();
}

std::string verdict_text(const Verdict& verdict) {
  if (!verdict.unknown.empty())
    return "not known: whether " + join(verdict.unknown, ", ") +
           " use the scales: they were not run with such models";
  const std::string idle = join(verdict.idle, ", ") + " in a cache of 16 bits";
  if (verdict.holding.empty())
    return verdict.idle.empty() ? "OK: no scales are meant" : "not used: the scales, by " + idle;
  return "OK: the scales are used by " + join(verdict.holding, ", ") +
         (verdict.idle.empty() ? "" : "; not used by " + idle);
}

}  // namespace kvcal
