#include "engines/verify.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "engines/cache_choice.h"

namespace kvcal {
namespace {

/// JSON has no NaN and no infinity.
Json number_json(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json scale_json(const EngineScale& scale) {
  if (scale.values.size() == 1) return number_json(scale.values[0]);
  Json list = Json::array();
  for (const float value : scale.values) list.push_back(number_json(value));
  return list;
}

std::string source_text(const EngineLayer& held, const EngineScale& scale) {
  if (held.is_16_bit) return "16 bits";
  return scale.source.empty() ? "default" : scale.source;
}

Json finding_json(const Finding& finding) {
  return {{"severity", name_of(finding.severity)},
          {"layer", finding.layers.empty() ? Json() : Json(range_text(finding.layers))},
          {"layers", finding.layers},
          {"message", finding.message},
          {"remedy", finding.remedy}};
}

}  // namespace

std::string_view name_of(Severity severity) {
  constexpr std::string_view kWords[] = {"error", "warning", "note"};
  return kWords[static_cast<size_t>(severity)];
}

bool loses_scales(const VerifyReport& report) {
  return std::ranges::any_of(
      report.findings, [](const Finding& finding) { return finding.severity == Severity::kError; });
}

bool holds_scales(const VerifyReport& report) {
  return std::ranges::any_of(report.layers, [](const EngineLayer& layer) {
    return !layer.k.source.empty() || !layer.v.source.empty();
  });
}

bool has_quantized_cache(const VerifyReport& report) {
  return is_quantized_cache(report.kv_cache_dtype);
}

Json report_json(const VerifyReport& report) {
  Json layers = Json::array(), findings = Json::array();
  for (const EngineLayer& held : report.layers)
    layers.push_back({{"layer", held.layer},
                      {"k_scale", scale_json(held.k)},
                      {"v_scale", scale_json(held.v)},
                      {"k_source", source_text(held, held.k)},
                      {"v_source", source_text(held, held.v)}});
  for (const Finding& finding : report.findings) findings.push_back(finding_json(finding));
  return {{"engine", report.engine},
          {"engine_version", report.version},
          {"run_on", report.run_on.empty() ? Json() : Json(report.run_on)},
          {"kv_cache_dtype", report.kv_cache_dtype},
          {"loads", report.loads},
          {"layers", layers},
          {"findings", findings}};
}

void Findings::add(Severity severity, std::string message, std::string remedy) {
  add(-1, severity, std::move(message), std::move(remedy));
}

void Findings::add(int64_t layer, Severity severity, std::string message, std::string remedy) {
  auto same = std::ranges::find_if(findings_, [&](const Finding& finding) {
    return finding.severity == severity && finding.message == message && finding.remedy == remedy;
  });
  if (same == findings_.end()) {
    findings_.push_back({severity, {}, std::move(message), std::move(remedy)});
    same = findings_.end() - 1;
  }
  if (layer < 0) return;
  const auto at = std::ranges::lower_bound(same->layers, layer);
  if (at == same->layers.end() || *at != layer) same->layers.insert(at, layer);
}

std::vector<Finding> Findings::ranked() && {
  const auto first_layer = [](const Finding& finding) {
    return finding.layers.empty() ? int64_t{-1} : finding.layers.front();
  };
  std::ranges::stable_sort(findings_, [&](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity < b.severity;
    return first_layer(a) < first_layer(b);
  });
  return std::move(findings_);
}

}  // namespace kvcal
