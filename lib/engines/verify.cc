#include "engines/verify.h"

#include <algorithm>
#include <optional>

#include "engines/scales_file.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// The engine's format that a checkpoint of this kind falls under; nullptr for none.
const EngineFormat* tried_format(const VerifyCase& subject) {
  const auto& formats = subject.engine.formats;
  const auto it = std::ranges::find(formats, subject.declaration.method, &EngineFormat::format);
  return it == formats.end() ? nullptr : &*it;
}

bool lacks_groups(const CacheDeclaration& declaration) {
  const Json* groups =
      declaration.config.is_object() ? find_field(declaration.config, "config_groups") : nullptr;
  return !groups || groups->empty();
}

enum class ModelEffect { kNone, kOnes, kRefused };

/// The effect on models of this type with this kind of checkpoint.
ModelEffect model_effect(const VerifyCase& subject, std::string_view model_type,
                         Findings& findings) {
  const EngineFormat* row = tried_format(subject);
  if (!row) return ModelEffect::kNone;
  const Miss* miss = row->miss(model_type);
  const std::string type(model_type);
  if (!miss) {
    if (!row->reads_type(model_type) && model_type != "llama")
      findings.add(Severity::kNote,
                   "models of type " + type +
                       " were not tried; what is said holds for those of Llama's kind");
    return ModelEffect::kNone;
  }
  if (miss->effect == MissEffect::kByRules) return ModelEffect::kNone;
  const bool refuses =
      miss->effect == MissEffect::kRefused || miss->effect == MissEffect::kRefusedWithoutGroups;
  if (miss->effect == MissEffect::kRefusedWithoutGroups && !lacks_groups(subject.declaration))
    return ModelEffect::kNone;
  if (subject.tensors.empty() && miss->effect == MissEffect::kRefused) return ModelEffect::kNone;
  findings.add(Severity::kError, type + ": " + std::string(miss->why), {});
  return refuses ? ModelEffect::kRefused : ModelEffect::kOnes;
}

/// Heads that tensor parallel ranks can share: each rank has whole ones, or ranks share one.
void check_ranks(const VerifyCase& subject, Findings& findings, bool& loads) {
  const int64_t heads = subject.config.cache_heads(), ranks = subject.options.tp_size;
  if (ranks == 1 || subject.config.latent.latent_rank > 0) return;
  if (heads % ranks != 0 && ranks % heads != 0) {
    loads = false;
    findings.add(
        Severity::kError,
        "it refuses " + std::to_string(heads) + " KV heads on " + std::to_string(ranks) + " ranks",
        "choose a --tp-size that divides the KV heads, or a multiple of them");
    return;
  }
  const Json& scheme = subject.declaration.scheme;
  const bool has_heads = scheme.is_object() && scheme.value("strategy", Json()) == "attn_head";
  if (has_heads && subject.rules.takes_heads && subject.engine.takes_sharded_heads)
    findings.add(Severity::kNote, heads >= ranks ? "each rank holds the scales of its " +
                                                       std::to_string(heads / ranks) + " heads"
                                                 : "each head's scale is on " +
                                                       std::to_string(ranks / heads) + " ranks");
}

bool has_cache_scales(const Placement& placement) {
  return std::ranges::any_of(placement.layers, [](const auto& entry) {
    const PlacedScales& placed = entry.second;
    return placed.k || placed.v || placed.both;
  });
}

/// A cache of 16 bits beside scales, and what turns it on.
void tell_cache(const VerifyCase& subject, const Placement& placement, Findings& findings) {
  const std::string argument(subject.engine.fp8_argument);
  if (!subject.choice.is_fp8 && has_cache_scales(placement) && !argument.empty())
    findings.add(Severity::kNote,
                 subject.options.kv_cache_dtype == "auto"
                     ? "it keeps K and V in 16 bits unless told, and the scales do nothing"
                     : "it keeps K and V in 16 bits, as asked, and the scales do nothing",
                 "start it with " + argument);
  if (!subject.choice.reads_scales && !subject.declaration.scheme.is_null())
    findings.add(Severity::kError,
                 "it passes over this kv_cache_scheme, and its scales: " +
                     failed_check(subject.rules, subject.declaration.scheme),
                 subject.remedy);
  if (subject.rules.dialect_by_config && subject.choice.is_fp8 && has_cache_scales(placement) &&
      subject.declaration.dialect != fp8::Format::kE4m3Fn &&
      subject.declaration.dialect != fp8::Format::kE4m3Fnuz)
    findings.add(Severity::kError,
                 "it refuses kv_scale where config.json has no kv_cache_torch_dtype of "
                 "float8_e4m3fn or float8_e4m3fnuz",
                 subject.remedy);
}

std::string calibrate_command(std::string_view format) {
  return "kvcal calibrate MODEL --recipe RECIPE --dataset DATA --format " + std::string(format) +
         " --output OUT";
}

/// Scales that can be read, whoever reads them.
std::optional<std::vector<LayerKvScales>> readable_scales(const ModelDir& model_dir,
                                                          const ModelConfig& config) {
  try {
    return read_checkpoint_scales(model_dir, config);
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The command that makes what the engine reads: a conversion where there are scales in another
/// form or in a number that it does not take, else a calibration.
std::string remedy_command(const ModelDir& model_dir, const ModelConfig& config,
                           const EngineRules& engine, const VerifyOptions& options,
                           const MethodRules& rules) {
  const std::string_view format = engine.format;
  const auto converted = [&](const std::string& how) {
    return "kvcal convert " + model_dir.given_path().string() + how + " --to " +
           std::string(format) + " --output OUT";
  };
  if (rules_for(engine, format).ones_for_fp8) return "serve it with an engine that uses them";
  if (!options.scales.empty()) return converted(" --scales " + options.scales.string());
  const auto scales = readable_scales(model_dir, config);
  if (!scales) return calibrate_command(format);
  if (find_form(scale_tensors_of(model_dir), config)->name != format) return converted("");
  const bool has_heads =
      std::ranges::any_of(*scales, [](const LayerKvScales& layer) { return layer.k.size() > 1; });
  return has_heads && !rules.takes_heads ? converted(" --strategy tensor")
                                         : calibrate_command(format);
}

void fill(VerifyReport& report, const VerifyCase& subject, std::string_view model_type,
          Findings& findings) {
  if (!subject.choice.refusal.empty()) {
    report.loads = false;
    findings.add(Severity::kError, "it refuses the checkpoint: " + subject.choice.refusal,
                 subject.remedy);
    return;
  }
  check_ranks(subject, findings, report.loads);
  const ModelEffect effect = model_effect(subject, model_type, findings);
  if (effect == ModelEffect::kRefused) report.loads = false;
  if (effect == ModelEffect::kOnes) {
    for (int64_t layer = 0; layer < subject.config.num_hidden_layers; ++layer)
      if (subject.config.has_attention(layer)) report.layers.push_back({layer, {}, {}});
    return;
  }
  const Placement placement = place_scales(subject, findings);
  report.loads = report.loads && placement.loads;
  tell_cache(subject, placement, findings);
  report.layers = held_scales(subject, placement, findings, report.loads);
  if (!subject.options.scales.empty())
    apply_scales_file(subject, report.layers, findings, report.loads);
}

}  // namespace

VerifyReport verify_engine(const ModelDir& model_dir, const ModelConfig& config,
                           std::string_view engine, const VerifyOptions& options) {
  const EngineRules& rules = engine_rules().at(engine);
  const CacheDeclaration declaration = read_declaration(model_dir, rules.quant_file);
  const MethodRules& method = rules_for(rules, declaration.method);
  const CacheChoice choice =
      choose_cache(method, declaration, options.kv_cache_dtype, options.is_rocm);
  const std::vector<ScaleTensor> tensors = find_scale_tensors(model_dir, config);
  const VerifyCase subject{.config = config,
                           .engine = rules,
                           .rules = method,
                           .declaration = declaration,
                           .choice = choice,
                           .options = options,
                           .tensors = tensors,
                           .remedy = remedy_command(model_dir, config, rules, options, method)};
  VerifyReport report{.engine = std::string(engine),
                      .version = std::string(rules.version),
                      .kv_cache_dtype = choice.dtype,
                      .loads = true,
                      .layers = {},
                      .findings = {}};
  Findings findings;
  fill(report, subject, required_string(model_dir.config(), "model_type"), findings);
  // What refuses a checkpoint holds nothing, and what would follow is no finding.
  if (!report.loads) report.layers.clear();
  report.findings = std::move(findings).ranked();
  return report;
}

}  // namespace kvcal
