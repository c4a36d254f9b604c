#include "inspect/verification.h"

#include <optional>

#include "core/folder.h"
#include "stored/dialect.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

constexpr const char* kScalesJson = "kv_cache_scales.json";

/// Scales of E4M3FNUZ are for platforms that store it.
VerifyOptions platform_of(const ModelDir& model) {
  VerifyOptions options;
  options.is_rocm = read_dialect(model) == fp8::Format::kE4m3Fnuz;
  return options;
}

bool uses_scales(const ModelDir& model, const ModelConfig& config, const std::string& engine,
                 const VerifyOptions& options) {
  const VerifyReport report = verify_engine(model, config, engine, options);
  if (!report.loads || loses_scales(report) || report.kv_cache_dtype == "auto") return false;
  for (const HeldLayer& layer : report.layers)
    if (!layer.k.source.empty() || !layer.v.source.empty()) return true;
  return false;
}

/// The platform and argument that the engine needs, "" for none; nullopt: it does not use the
/// scales.
std::optional<std::string> argument_for(const ModelDir& model, const ModelConfig& config,
                                        const std::string& engine) {
  const EngineRules& rules = engine_rules().at(engine);
  VerifyOptions options = platform_of(model);
  const std::string platform = options.is_rocm ? " on MI300" : "";
  if (uses_scales(model, config, engine, options)) return platform;
  if (rules.fp8_argument.empty()) return std::nullopt;
  options.kv_cache_dtype = "fp8_e4m3";
  const std::string argument = platform + " (" + std::string(rules.fp8_argument);
  if (uses_scales(model, config, engine, options)) return argument + ")";
  options.scales = model.path() / kScalesJson;
  if (!rules.scales_file.is_read || !is_there(options.scales)) return std::nullopt;
  if (!uses_scales(model, config, engine, options)) return std::nullopt;
  return argument + " " + std::string(rules.scales_file.argument) + " " + kScalesJson + ")";
}

/// The first finding.
std::string reason(const ModelDir& model, const ModelConfig& config, const std::string& engine) {
  const VerifyReport report = verify_engine(model, config, engine, platform_of(model));
  return report.findings.empty() ? "it reads none of the scales" : report.findings[0].message;
}

}  // namespace

std::vector<std::string> engine_choice(const std::vector<std::string>& asked) {
  std::vector<std::string> names;
  for (const std::string& name : asked) {
    if (name == "all") return engine_rules().names();
    choose_engine(name);  // fails with the known names
    names.push_back(name);
  }
  return names;
}

std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options) {
  const std::vector<std::string> names = engine_choice(engines);
  const ModelDir model_dir(checkpoint);
  const ModelConfig config = read_model_config(model_dir);
  std::vector<VerifyReport> reports;
  for (const std::string& engine : names)
    reports.push_back(verify_engine(model_dir, config, engine, options));
  return reports;
}

std::vector<ServedEngine> served_engines(const std::filesystem::path& folder,
                                         const ModelConfig& config) {
  const ModelDir model(folder);
  std::vector<ServedEngine> engines;
  for (const std::string& engine : engine_rules().names()) {
    const EngineRules& rules = engine_rules().at(engine);
    const auto argument = argument_for(model, config, engine);
    engines.push_back(
        {.title = std::string(rules.title) + " " + std::string(rules.versions.front()),
         .is_served = argument.has_value(),
         .note = argument ? *argument : reason(model, config, engine)});
  }
  return engines;
}

}  // namespace kvcal
