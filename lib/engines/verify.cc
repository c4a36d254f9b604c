#include "engines/verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "engines/engine_verdicts.h"
#include "engines/fused_parts.h"
#include "engines/loaded_checkpoint.h"
#include "engines/scale_loading.h"
#include "engines/scale_tensors.h"
#include "stored/kv_scales.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

constexpr std::string_view kInt8Remedy =
    "calibrate with a recipe of type float, such as fp8_kv_tensor";

/// Whether the engine was run with models of this type.
bool is_known(const VerifyCase& subject) {
  return subject.is_known;
}

/// The effect of what is known of models of this type with this kind of checkpoint.
MissEffect model_effect(const VerifyCase& subject, Findings& findings) {
  const Miss* miss = subject.miss;
  if (!is_known(subject))
    findings.add(Severity::kWarning,
                 subject.engine.seen().types.empty()
                     ? std::string("not known: this engine was not run, the rules are "
                                   "from its source")
                 : subject.engine.seen().has_run(subject.model_type)
                     ? "not known: models of type " + subject.model_type + " around " +
                           subject.config.model_type +
                           " were not tried; what is said holds for others of the type"
                     : "not known: models of type " + subject.model_type +
                           " were not tried; what is said holds for those of Llama's kind");
  if (!miss || goes_by_rules(miss->effect)) return MissEffect::kByRules;
  const bool is_met =
      miss->effect == MissEffect::kRefusedWithoutGroups
          ? (subject.rules.needs_linear_groups ? quantizes_no_linear(subject.declaration)
                                               : lacks_groups(subject.declaration))
          : !subject.tensors.empty() || miss->effect == MissEffect::kNoModel ||
                miss->effect == MissEffect::kSixteenBits;
  if (!is_met) return MissEffect::kByRules;
  const bool is_made_good = miss->effect == MissEffect::kOnes && uses_scales_file(subject);
  findings.add(is_made_good ? Severity::kNote : Severity::kError,
               subject.model_type + ": " + std::string(miss->why),
               is_made_good ? "" : subject.remedy);
  return miss->effect;
}

/// Heads that tensor parallel ranks can share: each rank has whole ones, or ranks share one.
void check_ranks(const VerifyCase& subject, int64_t heads, Findings& findings, bool& loads) {
  const int64_t ranks = subject.options.tp_size;
  if (ranks == 1 || subject.config.latent.latent_rank > 0) return;
  if (heads % ranks != 0 && ranks % heads != 0) {
    loads = false;
    findings.add(Severity::kError,
                 "it refuses " + counted(heads, "KV head") + " on " + counted(ranks, "rank"),
                 "choose a --tp-size that divides the KV heads, or a multiple of them");
    return;
  }
  if (takes_head_scales(subject) && subject.engine.takes_sharded_heads)
    findings.add(Severity::kNote,
                 heads >= ranks
                     ? "each rank holds the scales of its " + counted(heads / ranks, "head")
                     : "each head's scale is on " + counted(ranks / heads, "rank"));
}

/// A cache of 16 bits beside scales, and what turns it on.
void tell_cache(const VerifyCase& subject, const Placement& placement, Findings& findings) {
  const std::string argument(subject.engine.fp8_argument);
  const bool can_use = placement.has_any() && !subject.has_int8_scales;
  if (!subject.choice.is_quantized && can_use && !argument.empty())
    findings.add(Severity::kNote,
                 subject.options.kv_cache_dtype == "auto"
                     ? "it keeps K and V in 16 bits unless told, and the scales do nothing"
                     : "it keeps K and V in 16 bits, as asked, and the scales do nothing",
                 "start it with " + argument);
  if (!subject.options.skip_layers.empty() && subject.engine.skip_argument.empty())
    findings.add(Severity::kError, "it has no argument that leaves layers in 16 bits",
                 "serve it without such layers, or with an engine that has one");
  const std::string failed = failed_check(subject.rules, subject.declaration.scheme);
  if (!subject.choice.reads_scales && !failed.empty())
    findings.add(Severity::kError, "it passes over this kv_cache_scheme, and its scales: " + failed,
                 subject.remedy);
  if (subject.rules.dialect == FnuzRule::kByConfig && subject.choice.is_fp8 &&
      placement.has_any() && subject.declaration.dialect != fp8::Format::kE4m3Fn &&
      subject.declaration.dialect != fp8::Format::kE4m3Fnuz)
    findings.add(Severity::kError,
                 "it refuses kv_scale where config.json has no kv_cache_torch_dtype of "
                 "float8_e4m3fn or float8_e4m3fnuz",
                 subject.remedy);
}

/// A cache that loses by what was done to the model for another one.
void tell_smoothing(const VerifyCase& subject, const ModelDir& model_dir,
                    const std::string& cache_dtype, Findings& findings) {
  if (cache_dtype == "auto" || !subject.choice.is_quantized) return;
  const bool is_e4m3 = subject.choice.is_fp8 && cache_dtype.find("e5m2") == std::string::npos;
  const bool has_own_scales = is_dynamic(subject.declaration);
  if (is_e4m3 && !has_own_scales) return;
  // Last, because every engine asks, and a manifest may be large.
  const auto made = smoothed_for({{"smoothing", smoothing_of_folder(model_dir.given_path())}});
  if (made != SmoothedFor::kFp8E4m3) return;
  findings.add(Severity::kWarning,
               "the model's K was rewritten for an FP8 E4M3 cache with one scale a layer, and " +
                   (has_own_scales ? "dynamic scales" : cache_dtype) +
                   " may lose far more than before",
               "serve it with fp8_e4m3, or the model that it was made of");
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

/// What is said of a type that was not tried holds for those of Llama's kind.
constexpr std::string_view kUsualType = "llama";

/// What is known of a checkpoint's kind.
const Miss* miss_of(const EngineRules& engine, MissQuery query) {
  if (!engine.seen().has_run(query.model_type)) query.model_type = kUsualType;
  return find_miss(engine.seen(), query);
}

/// The command that makes what the engine reads: a conversion where there are scales in another
/// format or in a number that it does not take, else a calibration.
std::string remedy_command(const ModelDir& model_dir, const ModelConfig& config,
                           std::string_view format, const VerifyOptions& options,
                           const MethodRules& rules) {
  const auto converted = [&](const std::string& how) {
    return "kvcal convert " + model_dir.given_path().string() + how + " --format " +
           std::string(format) + " --output OUT";
  };
  if (format.empty()) return "serve it with an engine that uses them";
  if (!options.scales.empty()) return converted(" --scales " + options.scales.string());
  const auto scales = readable_scales(model_dir, config);
  if (!scales) return calibrate_command(format);
  if (find_kv_scale_format(scale_tensors_of(model_dir), config)->name != format)
    return converted("");
  const bool has_heads =
      std::ranges::any_of(*scales, [](const LayerKvScales& layer) { return layer.k.size() > 1; });
  return has_heads && rules.heads == HeadScales::kNotTaken ? converted(" --strategy tensor")
                                                           : calibrate_command(format);
}

void hold_by_rules(VerifyReport& report, const VerifyCase& subject, Findings& findings) {
  const Placement placement = place_scales(subject, findings);
  report.loads = report.loads && placement.loads;
  tell_cache(subject, placement, findings);
  report.layers = held_scales(subject, placement, findings, report.loads);
}

/// Names that several files hold, for loaders that want each once.
void check_repeats(const VerifyCase& subject, const ModelDir& model_dir, Findings& findings,
                   bool& loads) {
  if (!subject.engine.files.refuses_repeats) return;
  std::map<std::string_view, size_t> shards;
  for (size_t shard = 0; shard < model_dir.shards().size(); ++shard)
    for (const TensorView& tensor : model_dir.shards()[shard].tensors()) {
      const auto [it, is_new] = shards.emplace(tensor.name, shard);
      if (is_new) continue;
      loads = false;
      findings.add(Severity::kError,
                   "it refuses a folder with one name in two files: " + std::string(tensor.name) +
                       " in " + model_dir.shard_names()[it->second] + " and " +
                       model_dir.shard_names()[shard],
                   "remove one of the files");
      return;
    }
}

/// Whether the loader of such models wants a place for each tensor.
bool stops_at_strays(const VerifyCase& subject) {
  const EngineAnswers& seen = subject.engine.seen();
  const auto has_type = [&](const std::vector<std::string>& types) {
    return std::ranges::find(types, subject.model_type) != types.end();
  };
  return has_type(seen.stop_at_strays) ||
         (subject.engine.unknown == Unknown::kRefused && !has_type(seen.pass_strays));
}

/// Tensors that stop a loader which wants a place for each.
void check_foreign(const VerifyCase& subject, const ModelDir& model_dir, Findings& findings,
                   bool& loads) {
  if (!stops_at_strays(subject)) return;
  // Of methods without rules it is not known which tensors their Linears have.
  const bool has_weights =
      declares_weights(subject.declaration) ||
      (!subject.declaration.method.empty() && &subject.rules == &subject.engine.otherwise);
  for (const std::string& name :
       foreign_tensors(model_dir, subject.config, subject.tensors, has_weights)) {
    loads = false;
    findings.add(Severity::kError,
                 "its loader stops at " + name + ", for which the model has no place",
                 "remove the tensor");
  }
}

std::string first_of(const std::vector<std::string>& lines) {
  const size_t more = lines.size() - 1;
  return lines.front() + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

/// Codes in modules that the config leaves in 16 bits: the engine makes a parameter of 16 bits for
/// them. Their shapes or their scales fit none; codes of FP8 without scales would be numbers.
void check_described(const VerifyCase& subject, const ModelDir& model_dir, Findings& findings,
                     bool& loads) {
  const DescribedWeights described = read_described_weights(model_dir, subject.config);
  if (!described.unknown_key.empty())
    findings.add(Severity::kWarning, described.unknown_key + ", which other commands refuse");
  for (const std::string& warning : described.warnings) findings.add(Severity::kWarning, warning);
  // Run with vLLM 0.32: it loads an FP8 weight without its scale, and stops at a scale without
  // codes.
  if (!described.problems.empty())
    findings.add(Severity::kError,
                 first_of(described.problems) +
                     "; loaders stop there, or compute with what their memory held",
                 "fetch the checkpoint again, or quantize its source");
  if (described.undescribed.empty()) return;
  const std::string which =
      first_of(described.undescribed) + ": codes of a module that the config leaves in 16 bits";
  const std::string remedy = "describe the module in quantization_config, or store it in 16 bits";
  if (subject.engine.unknown == Unknown::kRefused) {
    loads = false;
    findings.add(Severity::kError, "its loader stops at " + which, remedy);
  } else {
    findings.add(Severity::kWarning, "it stops at, or takes for numbers, " + which, remedy);
  }
}

void fill(VerifyReport& report, const VerifyCase& subject, const ModelDir& model_dir,
          Findings& findings) {
  if (const std::string refusal = refusal_of(subject, model_dir); !refusal.empty()) {
    report.loads = false;
    findings.add(Severity::kError, "it refuses the checkpoint: " + refusal, subject.remedy);
    return;
  }
  if (subject.has_int8_scales && report.kv_cache_dtype != "int8")
    findings.add(Severity::kError,
                 "the checkpoint's scales are of an INT8 cache, and it has none with such scales",
                 std::string(kInt8Remedy));
  check_repeats(subject, model_dir, findings, report.loads);
  std::set<int64_t> heads;
  for (const int64_t layer : subject.config.attention_layers())
    heads.insert(subject.config.cache(layer).heads);
  for (const int64_t count : heads) check_ranks(subject, count, findings, report.loads);
  check_described(subject, model_dir, findings, report.loads);
  check_fused_parts(subject, model_dir, findings, report.loads);
  if (!subject.miss) check_foreign(subject, model_dir, findings, report.loads);
  const MissEffect effect = model_effect(subject, findings);
  const bool is_asked = subject.options.kv_cache_dtype != "auto";
  if (effect == MissEffect::kRefused || effect == MissEffect::kRefusedWithoutGroups ||
      effect == MissEffect::kNoModel || (effect == MissEffect::kRefusedWhenAsked && is_asked))
    report.loads = false;
  const bool is_by_asking =
      effect == MissEffect::kOnesWhenAsked || effect == MissEffect::kRefusedWhenAsked;
  if (effect == MissEffect::kSixteenBits || (is_by_asking && !is_asked))
    report.kv_cache_dtype = "auto";
  if (effect == MissEffect::kByRules) {
    hold_by_rules(report, subject, findings);
  } else {
    for (const int64_t layer : subject.config.attention_layers())
      report.layers.push_back({layer, {}, {}});
  }
  if (!subject.options.scales.empty()) apply_scales_file(subject, report, findings);
}

/// The scales in a file that the engine leaves out; none where it cannot be read.
std::vector<ScaleTensor> other_scales(const VerifyCase& subject, const ModelDir& model_dir,
                                      const std::string& file, Findings& findings) {
  try {
    return find_scale_tensors(ModelDir(model_dir.path(), {file}), subject.config);
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    findings.add(Severity::kNote,
                 "it does not load " + file + ", which kvcal cannot read: " + error.message());
    return {};
  }
}

/// Scales in files that the engine leaves out.
void tell_other_files(const VerifyCase& subject, const ModelDir& model_dir,
                      const std::vector<std::string>& others, Findings& findings) {
  for (const std::string& file : others)
    for (const ScaleTensor& tensor : other_scales(subject, model_dir, file, findings)) {
      const auto same = std::ranges::find(subject.tensors, tensor.name, &ScaleTensor::name);
      const bool is_lost = same == subject.tensors.end();
      if (!is_lost && same->values == tensor.values) continue;
      findings.add(tensor.layer, is_lost ? Severity::kError : Severity::kWarning,
                   general_name(tensor, subject.config) + " of " + file +
                       (is_lost ? " is lost: it does not load this file"
                                : " is another one than it loads: it does not load this file"),
                   is_lost ? "name the file in " + std::string(kIndexFileName) : "remove the file");
    }
}

/// Whether the checkpoint says that its scales are of an INT8 cache.
bool declares_int8(const ModelDir& model_dir) {
  try {
    const KvScheme scheme = read_kv_scheme(read_quantization_config(model_dir));
    return scheme.cache == KvScheme::Cache::kInt8;
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return false;  // what an engine makes of it is another finding
  }
}

VerifyReport verify_files(const ModelDir& model_dir, const ModelConfig& config,
                          const EngineChoice& chosen, const VerifyOptions& options,
                          const std::vector<std::string>& others) {
  const EngineRules& rules = chosen.rules();
  for (const int64_t layer : options.skip_layers)
    if (layer < 0 || layer >= config.num_hidden_layers || !config.has_attention(layer))
      fail("layer ", layer, " to skip is none of the layers with K and V, which are ",
           range_text(config.attention_layers()));
  const CacheDeclaration declaration = read_declaration(model_dir, rules.reading);
  const MethodRules& method = rules_for(rules, declaration.method);
  CacheChoice choice = choose_cache(method, declaration, options.kv_cache_dtype, options.is_rocm);
  const std::vector<ScaleTensor> tensors = find_scale_tensors(model_dir, config);
  const std::string model_type = required_string(model_dir.config(), "model_type");
  MissQuery missed{.model_type = model_type,
                   .method = declaration.method,
                   .names = linear_scale_endings(model_dir),
                   .has_weights = declares_weights(declaration),
                   .has_attention = declares_attention(declaration),
                   .config = &model_dir.config()};
  for (const ScaleTensor& tensor : tensors) {
    missed.names.push_back(tensor.name);
    missed.rests.push_back(name_in_layer(tensor));
  }
  const bool is_run = rules.seen().has_run(model_type, config.model_type, model_dir.config());
  const Miss* miss = miss_of(rules, missed);
  if (const Miss* inner = refusal_inside(rules, missed, config)) miss = inner;
  if (miss && miss->effect == MissEffect::kByRulesWhenAsked && options.kv_cache_dtype == "auto") {
    choice.dtype = "auto";
    choice.is_fp8 = choice.is_quantized = false;
  }
  const bool has_int8_scales = !tensors.empty() && declares_int8(model_dir);
  const bool is_lost_int8 = has_int8_scales && choice.dtype != "int8";
  const std::string_view format = read_format(
      chosen, rules.seen().has_run(model_type) ? model_type : kUsualType, missed.has_weights);
  const VerifyCase subject{
      .config = config,
      .model_type = model_type,
      .engine = rules,
      .rules = method,
      .miss = miss,
      .is_known = is_run,
      .names = find_names(rules.seen(), model_type, declaration.method),
      .declaration = declaration,
      .choice = choice,
      .options = options,
      .tensors = tensors,
      .has_int8_scales = has_int8_scales,
      .dtype = run_dtype(rules.run_dtype, model_dir, config, model_type),
      .remedy = is_lost_int8 ? std::string(kInt8Remedy)
                             : remedy_command(model_dir, config, format, options, method)};
  VerifyReport report{.engine = chosen.name,
                      .version = chosen.version,
                      .run_on = std::string(chosen.run_on()),
                      .kv_cache_dtype = choice.dtype,
                      .loads = true,
                      .is_known = is_known(subject),
                      .layers = {},
                      .findings = {}};
  Findings findings;
  if (const std::string newer = chosen.warning(); !newer.empty())
    findings.add(Severity::kWarning, newer);
  fill(report, subject, model_dir, findings);
  tell_other_files(subject, model_dir, others, findings);
  if (report.loads) tell_smoothing(subject, model_dir, report.kv_cache_dtype, findings);
  if (report.loads)
    check_draft_scales(subject, model_dir, choice.is_fp8 && report.kv_cache_dtype != "auto",
                       findings);
  // What refuses a checkpoint holds nothing, and what would follow is no finding.
  if (!report.loads) report.layers.clear();
  report.findings = std::move(findings).ranked();
  return report;
}

}  // namespace

VerifyReport verify_checkpoint(const std::filesystem::path& path, std::string_view engine,
                               const VerifyOptions& options) {
  const EngineChoice chosen = choose_engine(engine);
  const std::filesystem::path folder = resolve_model_folder(path);
  const LoadedFiles files = loaded_files(folder, chosen.rules().files);
  if (!files.refusal.empty()) {
    VerifyReport report{.engine = chosen.name,
                        .version = chosen.version,
                        .run_on = std::string(chosen.run_on()),
                        .kv_cache_dtype = "auto",
                        .loads = false,
                        .layers = {},
                        .findings = {}};
    report.findings.push_back({.severity = Severity::kError,
                               .layers = {},
                               .message = "it refuses the checkpoint: " + files.refusal,
                               .remedy = "put the file there, or mend the index"});
    return report;
  }
  // Without a file that it would load, kvcal's own reader tells what is missing.
  const ModelDir model_dir = files.names.empty() ? ModelDir(path) : ModelDir(path, files.names);
  return verify_files(model_dir, read_model_config(model_dir, options.family), chosen, options,
                      files.others);
}

}  // namespace kvcal
