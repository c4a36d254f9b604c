#include "engines/verify.h"

#include <algorithm>
#include <optional>
#include <set>

#include "engines/scales_file.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// Whether the engine was run with models of this type, or misses them.
bool is_known(const VerifyCase& subject) {
  const ModelTypes& tried = subject.engine.tried;
  return subject.miss || std::ranges::find(tried, subject.model_type) != tried.end();
}

/// The effect of what is known of models of this type with this kind of checkpoint.
MissEffect model_effect(const VerifyCase& subject, Findings& findings) {
  const ModelTypes& tried = subject.engine.tried;
  const Miss* miss = subject.miss;
  if (!is_known(subject))
    findings.add(Severity::kWarning,
                 tried.empty()
                     ? std::string("not known: this engine was not run, the rules are "
                                   "from its source")
                     : "not known: models of type " + subject.model_type +
                           " were not tried; what is said holds for those of Llama's kind");
  if (!miss || miss->effect == MissEffect::kByRules) return MissEffect::kByRules;
  const bool is_met = miss->effect == MissEffect::kRefusedWithoutGroups
                          ? lacks_groups(subject.declaration)
                          : !subject.tensors.empty() || miss->effect == MissEffect::kNoModel ||
                                miss->effect == MissEffect::kSixteenBits;
  if (!is_met) return MissEffect::kByRules;
  const bool is_made_good = miss->effect == MissEffect::kOnes && takes_scales_file(subject);
  findings.add(is_made_good ? Severity::kNote : Severity::kError,
               subject.model_type + ": " + std::string(miss->why),
               miss->format.empty() || is_made_good ? "" : subject.remedy);
  return miss->effect;
}

/// Heads that tensor parallel ranks can share: each rank has whole ones, or ranks share one.
void check_ranks(const VerifyCase& subject, int64_t heads, Findings& findings, bool& loads) {
  const int64_t ranks = subject.options.tp_size;
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
                           const MethodRules& rules, const Miss* miss) {
  const std::string_view format = miss && !miss->format.empty() ? miss->format : engine.format;
  const auto converted = [&](const std::string& how) {
    return "kvcal convert " + model_dir.given_path().string() + how + " --to " +
           std::string(format) + " --output OUT";
  };
  if (format.empty() || rules_for(engine, format).ones_for_fp8)
    return "serve it with an engine that uses them";
  if (!options.scales.empty()) return converted(" --scales " + options.scales.string());
  const auto scales = readable_scales(model_dir, config);
  if (!scales) return calibrate_command(format);
  if (find_form(scale_tensors_of(model_dir), config)->name != format) return converted("");
  const bool has_heads =
      std::ranges::any_of(*scales, [](const LayerKvScales& layer) { return layer.k.size() > 1; });
  return has_heads && !rules.takes_heads ? converted(" --strategy tensor")
                                         : calibrate_command(format);
}

void hold_by_rules(VerifyReport& report, const VerifyCase& subject, Findings& findings) {
  const Placement placement = place_scales(subject, findings);
  report.loads = report.loads && placement.loads;
  tell_cache(subject, placement, findings);
  report.layers = held_scales(subject, placement, findings, report.loads);
}

/// Why the engine refuses the checkpoint whatever its model; empty: it does not.
std::string refusal_of(const VerifyCase& subject, const ModelDir& model_dir) {
  const CacheDeclaration& declaration = subject.declaration;
  if (subject.engine.needs_method && declaration.config.is_object() && declaration.method.empty())
    return "its quantization_config has no quant_method";
  for (const char* key : {"torch_dtype", "dtype"})
    if (subject.engine.refuses_auto_type && model_dir.config().value(key, Json()) == "auto")
      return "config.json's " + std::string(key) + " is \"auto\"";
  if (subject.rules.needs_targets && !subject.miss && lacks_targets(declaration) &&
      subject.choice.refusal.empty())
    return "config_groups are empty and ignore does not name Linear, and it wants a target of "
           "every "
           "Linear";
  return subject.choice.refusal;
}

void fill(VerifyReport& report, const VerifyCase& subject, const ModelDir& model_dir,
          Findings& findings) {
  if (const std::string refusal = refusal_of(subject, model_dir); !refusal.empty()) {
    report.loads = false;
    findings.add(Severity::kError, "it refuses the checkpoint: " + refusal, subject.remedy);
    return;
  }
  std::set<int64_t> heads;
  for (const int64_t layer : subject.config.attention_layers())
    heads.insert(subject.config.cache(layer).heads);
  for (const int64_t count : heads) check_ranks(subject, count, findings, report.loads);
  const MissEffect effect = model_effect(subject, findings);
  if (effect == MissEffect::kRefused || effect == MissEffect::kRefusedWithoutGroups ||
      effect == MissEffect::kNoModel)
    report.loads = false;
  if (effect == MissEffect::kSixteenBits ||
      (effect == MissEffect::kOnesWhenAsked && subject.options.kv_cache_dtype == "auto"))
    report.kv_cache_dtype = "auto";
  if (effect == MissEffect::kByRules) {
    hold_by_rules(report, subject, findings);
  } else {
    for (const int64_t layer : subject.config.attention_layers())
      report.layers.push_back({layer, {}, {}});
  }
  if (!subject.options.scales.empty())
    apply_scales_file(subject, report.layers, findings, report.loads);
}

}  // namespace

VerifyReport verify_engine(const ModelDir& model_dir, const ModelConfig& config,
                           std::string_view engine, const VerifyOptions& options) {
  const EngineChoice chosen = choose_engine(engine);
  const EngineRules& rules = chosen.rules();
  const CacheDeclaration declaration = read_declaration(model_dir, rules.quant_file);
  const MethodRules& method = rules_for(rules, declaration.method);
  const CacheChoice choice =
      choose_cache(method, declaration, options.kv_cache_dtype, options.is_rocm);
  const std::vector<ScaleTensor> tensors = find_scale_tensors(model_dir, config);
  const std::string model_type = required_string(model_dir.config(), "model_type");
  MissSubject missed{.model_type = model_type,
                     .method = declaration.method,
                     .has_weights = declares_weights(declaration)};
  for (const ScaleTensor& tensor : tensors) missed.names.push_back(tensor.name);
  const Miss* miss = find_miss(rules, missed);
  const VerifyCase subject{
      .config = config,
      .model_type = model_type,
      .engine = rules,
      .rules = method,
      .miss = miss,
      .declaration = declaration,
      .choice = choice,
      .options = options,
      .tensors = tensors,
      .remedy = remedy_command(model_dir, config, rules, options, method, miss)};
  VerifyReport report{.engine = chosen.name,
                      .version = chosen.version,
                      .kv_cache_dtype = choice.dtype,
                      .loads = true,
                      .is_known = is_known(subject),
                      .layers = {},
                      .findings = {}};
  Findings findings;
  fill(report, subject, model_dir, findings);
  // What refuses a checkpoint holds nothing, and what would follow is no finding.
  if (!report.loads) report.layers.clear();
  report.findings = std::move(findings).ranked();
  return report;
}

}  // namespace kvcal
