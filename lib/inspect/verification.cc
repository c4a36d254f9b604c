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
  return counted(scale.values.size(), "value");
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

std::string layers_table(const std::vector<EngineLayer>& layers) {
  TextTable table({"layer", "k_scale", "v_scale", "source"});
  for (const EngineLayer& held : layers)
    table.add(
        {std::to_string(held.layer), held_text(held.k), held_text(held.v), held_source(held)});
  return table.text();
}

}  // namespace

std::string verification_text(const VerifyReport& report, const std::string& checkpoint,
                              bool is_whole) {
  std::ostringstream out;
  out << EngineChoice{report.engine, report.version}.title() << ", " << checkpoint << ": "
      << (report.loads ? "KV cache " + (report.kv_cache_dtype == "auto" ? std::string("of 16 bits")
                                                                        : report.kv_cache_dtype)
                       : std::string("refused"))
      << '\n';
  for (const Finding& finding : report.findings) {
    if (!is_whole && finding.severity == Severity::kNote) continue;
    out << name_of(finding.severity) << finding_layers(finding) << ": " << finding.message << '\n';
    if (!finding.remedy.empty()) out << "  remedy: " << finding.remedy << '\n';
  }
  if (is_whole && !report.layers.empty()) out << layers_table(report.layers);
  return out.str();
}

std::string_view name_of(const Verdict& verdict) {
  return !verdict.losing.empty()    ? "lost"
         : !verdict.unknown.empty() ? "not known"
         : !verdict.holding.empty() ? "used"
         : !verdict.idle.empty()    ? "16 bits"
                                    : "no scales";
}

Json verification_json(const std::vector<VerifyReport>& reports, const std::string& problem) {
  Json list = Json::array();
  for (const VerifyReport& report : reports) list.push_back(report_json(report));
  Json json = list.size() == 1 ? list[0] : Json{{"reports", list}};
  json["verdict"] = name_of(verdict_of(reports));
  json["problem"] = problem.empty() ? Json(nullptr) : Json(problem);
  return json;
}

std::string verdict_text(const Verdict& verdict) {
  if (!verdict.unknown.empty())
    return "not known: whether " + join(verdict.unknown, ", ") +
           (verdict.unknown.size() == 1 ? " uses the scales: it was not run with such models"
                                        : " use the scales: they were not run with such models");
  const std::string idle = join(verdict.idle, ", ") + " in a cache of 16 bits";
  if (verdict.holding.empty())
    return verdict.idle.empty() ? "OK: no scales are meant" : "not used: the scales, by " + idle;
  return "OK: the scales are used by " + join(verdict.holding, ", ") +
         (verdict.idle.empty() ? "" : "; not used by " + idle);
}

}  // namespace kvcal
