#include <algorithm>
#include <cmath>
#include <optional>

#include "core/file.h"
#include "core/text.h"
#include "engines/scale_loading.h"
#include "family/expected_tensors.h"
#include "stored/read_model_config.h"

namespace kvcal {
namespace {

bool is_plain_module(const ModelConfig& config, int64_t layer) {
  const std::string module = config.attention_module(layer);
  return module.ends_with(".self_attn") || module.ends_with(".mixer");
}

const NameRule* rule_of(const MethodRules& rules, const ScaleTensor& tensor,
                        const ModelConfig& config) {
  if (tensor.layer < 0) return nullptr;
  const auto rule = std::ranges::find_if(rules.names, [&](const NameRule& name) {
    return name.suffix == tensor.rest &&
           (!name.needs_plain_module || is_plain_module(config, tensor.layer));
  });
  return rule == rules.names.end() ? nullptr : &*rule;
}

/// Whether the engine knows the name with some configuration.
bool is_known(const EngineRules& engine, const ScaleTensor& tensor, const ModelConfig& config) {
  return std::ranges::any_of(engine.methods, [&](const MethodRules& rules) {
    return rule_of(rules, tensor, config) != nullptr;
  });
}

/// Zero points, and scales of queries and probabilities, are none of the cache's.
bool is_of_cache(const ScaleTensor& tensor) {
  const std::string_view rest = tensor.rest;
  return !rest.ends_with("zero_point") && !rest.ends_with(".q_scale") &&
         !rest.ends_with(".q.scale") && !rest.ends_with("q_proj.output_scale") &&
         !rest.ends_with("prob_output_scale") && !rest.ends_with("prob_scale");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + join(shape, ", ", [](int64_t size) { return std::to_string(size); }) + "]";
}

int64_t element_count_of(const ScaleTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  return count;
}

class Placer {
 public:
  Placer(const VerifyCase& subject, Findings& findings) : subject_(subject), findings_(findings) {
    for (int64_t layer = 0; layer < subject.config.num_hidden_layers; ++layer)
      if (subject.config.has_attention(layer)) placement_.layers[layer];
  }

  Placement place() && {
    using enum NameOutcome;
    for (const ScaleTensor& tensor : subject_.tensors) {
      const NameRule* rule =
          subject_.choice.reads_scales ? rule_of(subject_.rules, tensor, subject_.config) : nullptr;
      const auto [outcome, side] = seen_of(tensor);
      if (outcome == kRefused)
        refuse(tensor, "its loader of such models stops at " + name_of(tensor), subject_.remedy);
      else if (outcome == kDropped || outcome == kDroppedWhenAsked || outcome == kSixteenBits)
        dropped_.push_back(&tensor);
      else if ((outcome == kLoaded || outcome == kLoadedWhenAsked) && side != 0 &&
               tensor.layer >= 0)
        put(tensor, side == 'k' ? ScaleSide::kKey : ScaleSide::kValue);
      else if (!rule)
        leave(tensor);
      else if (rule->side != ScaleSide::kTaken)
        put(tensor, rule->side);
    }
    for (const ScaleTensor* tensor : dropped_) tell_dropped(*tensor);
    return std::move(placement_);
  }

 private:
  std::string name_of(const ScaleTensor& tensor) const {
    return general_name(tensor, subject_.config);
  }

  /// What the loader was seen to do with the name; not where it passes over all scales.
  TriedName seen_of(const ScaleTensor& tensor) const {
    return !subject_.names || !subject_.choice.reads_scales
               ? TriedName()
               : tried_name(*subject_.names, name_in_layer(tensor));
  }

  void refuse(const ScaleTensor& tensor, const std::string& why, const std::string& remedy) {
    placement_.loads = false;
    findings_.add(tensor.layer, Severity::kError, why, remedy);
  }

  void leave(const ScaleTensor& tensor) {
    const bool known = is_known(subject_.engine, tensor, subject_.config);
    const Unknown policy = known ? subject_.engine.unplaced : subject_.engine.unknown;
    if (policy != Unknown::kRefused) {
      dropped_.push_back(&tensor);
      return;
    }
    const std::string place = tensor.layer < 0
                                  ? ", which belongs to no attention layer of the model"
                              : known ? ", for which this configuration makes no place"
                                      : ", a name that it does not know";
    refuse(tensor, "its loader stops at " + name_of(tensor) + place, remedy_for(tensor, known));
  }

  std::string remedy_for(const ScaleTensor& tensor, bool known) const {
    if (tensor.layer < 0) return "remove the tensor, or rename it to its layer's";
    if (known || subject_.rules.names.empty()) return subject_.remedy;
    return "rename it to " + std::string(subject_.rules.names[0].suffix.substr(1)) + " or " +
           std::string(subject_.rules.names[1].suffix.substr(1)) + " of " +
           subject_.config.attention_module(tensor.layer) + ", or " + subject_.remedy;
  }

  void put(const ScaleTensor& tensor, ScaleSide side) {
    if (counts_other_heads(tensor))
      refuse(tensor,
             "it counts " + std::to_string(subject_.config.num_key_value_heads) +
                 " KV heads for every layer, and stops at scales of heads where a layer has " +
                 std::to_string(subject_.config.cache(tensor.layer).heads),
             "calibrate with a scale a tensor");
    else
      check_shape(tensor);
    PlacedScales& layer = placement_.layers.at(tensor.layer);
    const ScaleTensor*& place = side == ScaleSide::kKey     ? layer.k
                                : side == ScaleSide::kValue ? layer.v
                                                            : layer.both;
    if (place && place->values != tensor.values)
      findings_.add(tensor.layer, Severity::kError,
                    place->name == tensor.name
                        ? name_of(tensor) + " of " + tensor.file + " replaces that of " +
                              place->file + ", which holds another value"
                        : name_of(tensor) + " replaces " + name_of(*place) +
                              ", which comes before it by name and holds another value",
                    "remove one of the two");
    place = &tensor;
  }

  /// Source: vLLM 0.32, compressed_tensors.py, `_tp_aware_loader`.
  bool counts_other_heads(const ScaleTensor& tensor) const {
    return subject_.rules.heads == HeadScales::kCut && takes_head_scales(subject_) &&
           subject_.config.latent.latent_rank == 0 &&
           subject_.config.cache(tensor.layer).heads != subject_.config.num_key_value_heads;
  }

  /// The heads that config.json names, also of a latent cache, which has one.
  int64_t named_heads(int64_t heads) const {
    return subject_.config.latent.latent_rank > 0 ? subject_.config.num_key_value_heads : heads;
  }

  /// Whether the shape is one that the engine takes without a word.
  bool fits(const ScaleTensor& tensor, bool has_heads) const {
    const int64_t heads = subject_.config.cache(tensor.layer).heads,
                  count = element_count_of(tensor);
    const std::vector<int64_t> head_shape{heads, 1, 1};
    if (subject_.rules.shapes == ScaleShapes::kExact)
      return tensor.shape ==
             (has_heads ? std::vector<int64_t>{named_heads(heads), 1, 1} : std::vector<int64_t>{1});
    if (has_heads && subject_.rules.shapes == ScaleShapes::kAny)
      return count == 1 || tensor.shape == head_shape;
    return (count == 1 && (!has_heads || subject_.options.tp_size == 1)) ||
           (has_heads && count == heads);
  }

  void check_shape(const ScaleTensor& tensor) {
    const int64_t heads = subject_.config.cache(tensor.layer).heads,
                  count = element_count_of(tensor);
    if (tensor.values.empty() && count > 0) {
      findings_.add(tensor.layer, Severity::kError,
                    name_of(tensor) + " is no tensor of a few numbers", "store it as F32");
      return;
    }
    const bool has_heads = takes_head_scales(subject_);
    if (fits(tensor, has_heads)) return;
    const std::string found = name_of(tensor) + " of shape " + shape_text(tensor.shape);
    const std::string wanted =
        has_heads ? std::to_string(heads) + " elements, one a head" : "one element";
    if (subject_.rules.shapes == ScaleShapes::kAny)
      findings_.add(tensor.layer, Severity::kError,
                    "its forward pass stops at " + found + ", it takes " + wanted, subject_.remedy);
    else if (subject_.rules.heads == HeadScales::kCut && has_heads && count > heads)
      findings_.add(tensor.layer, Severity::kError, "of " + found + " it takes the first " + wanted,
                    subject_.remedy);
    else
      refuse(tensor, "it refuses " + found + ", it takes " + wanted, subject_.remedy);
  }

  void tell_dropped(const ScaleTensor& tensor) {
    if (!is_of_cache(tensor)) return;
    const bool known = is_known(subject_.engine, tensor, subject_.config);
    const Unknown policy = known ? subject_.engine.unplaced : subject_.engine.unknown;
    const std::string how =
        policy == Unknown::kDroppedWithWarning ? "drops it with a warning" : "never looks for it";
    if (tensor.layer >= 0) {
      const PlacedScales& layer = placement_.layers.at(tensor.layer);
      if (layer.both || (layer.k && layer.v)) {
        findings_.add(tensor.layer, Severity::kNote,
                      name_of(tensor) + " is not read: other tensors give the layer's scales");
        return;
      }
    }
    if (!subject_.options.scales.empty() && subject_.engine.scales_file.is_read) {
      findings_.add(tensor.layer, Severity::kNote,
                    name_of(tensor) + " is not read: the scales are those of " +
                        subject_.options.scales.filename().string());
      return;
    }
    findings_.add(tensor.layer, Severity::kError, name_of(tensor) + " is lost: it " + how,
                  subject_.remedy);
  }

  const VerifyCase& subject_;
  Findings& findings_;
  Placement placement_;
  std::vector<const ScaleTensor*> dropped_;
};

/// Engines that tell capital letters apart refuse them before.
bool is_head_strategy(const Json& strategy) {
  return strategy.is_string() && ascii_lower(strategy.get<std::string>()) == "attn_head";
}

}  // namespace

bool is_dynamic(const CacheDeclaration& declaration) {
  const Json& scheme = declaration.scheme;
  const Json dynamic = value_of(scheme, "dynamic");
  return dynamic == true || dynamic == 1;
}

bool takes_head_scales(const VerifyCase& subject) {
  const Json& scheme = subject.declaration.scheme;
  return subject.rules.heads != HeadScales::kNotTaken && scheme.is_object() &&
         is_head_strategy(scheme.value("strategy", Json()));
}

Placement place_scales(const VerifyCase& subject, Findings& findings) {
  return Placer(subject, findings).place();
}

namespace {

/// A rank or a layer, which JSON writes as a text.
std::optional<int64_t> key_number(const std::string& key) {
  constexpr size_t kMostDigits = 9;
  if (key.empty() || key.size() > kMostDigits ||
      key.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(key);
}

void check_header(const Json& file, const ModelConfig& config) {
  if (!file.is_object()) fail("it is ", kind_of(file), ", expected an object");
  if (!file.contains("model_type")) fail_missing("model_type", "a string or null");
  const Json& type = file.at("model_type");
  if (!type.is_string() && !type.is_null()) fail_kind("model_type", "a string or null", type);
  if (type != config.model_type)
    fail("model_type is ", type.dump(), ", the model's is \"", config.model_type, "\"");
}

std::vector<float> rank_scales(const Json& rank, const std::string& name, int64_t num_layers) {
  if (!rank.is_object()) fail_kind(name, "an object", rank);
  if (static_cast<int64_t>(rank.size()) != num_layers)
    fail(name, " has ", rank.size(), " layers, the model ", num_layers);
  std::vector<float> scales(static_cast<size_t>(num_layers), std::nanf(""));
  for (const auto& [key, value] : rank.items()) {
    const std::optional<int64_t> layer = key_number(key);
    if (!layer || *layer >= num_layers) fail(name, " has a layer '", key, "'");
    if (!value.is_number()) fail_kind(name + "." + key, "a number", value);
    scales[static_cast<size_t>(*layer)] = value.get<float>();
  }
  return scales;
}

std::vector<std::vector<float>> parse_scales(const Json& file, const ModelConfig& config,
                                             int64_t tp_size) {
  check_header(file, config);
  const Json* cache = find_field(file, "kv_cache");
  if (!cache || !cache->is_object()) fail_missing("kv_cache", "an object");
  const std::string dtype = required_string(*cache, "dtype");
  if (dtype != "float8_e4m3fn") fail("kv_cache.dtype is '", dtype, "', they take 'float8_e4m3fn'");
  const Json* ranks = find_field(*cache, "scaling_factor");
  if (!ranks || !ranks->is_object()) fail_missing("kv_cache.scaling_factor", "an object");
  if (static_cast<int64_t>(ranks->size()) != tp_size)
    fail("kv_cache.scaling_factor has ", ranks->size(), " ranks, the engine runs ", tp_size);
  std::vector<std::vector<float>> layers(static_cast<size_t>(config.num_hidden_layers));
  for (int64_t rank = 0; rank < tp_size; ++rank) {
    const Json* scales = find_field(*ranks, std::to_string(rank));
    const std::string name = "kv_cache.scaling_factor." + std::to_string(rank);
    if (!scales) fail_missing(name, "an object");
    const std::vector<float> values = rank_scales(*scales, name, config.num_hidden_layers);
    for (size_t layer = 0; layer < layers.size(); ++layer) layers[layer].push_back(values[layer]);
  }
  return layers;
}

void hold(EngineLayer& held, std::vector<float> values, const std::string& source, float factor,
          Findings& findings) {
  for (float& value : values) {
    value *= factor;
    if (!std::isfinite(value) || value <= 0)
      findings.add(held.layer, Severity::kError, "it uses a scale that is not finite and positive",
                   "calibrate these layers");
  }
  // One value where all ranks have the same.
  if (std::ranges::all_of(values, [&](float value) { return value == values[0]; }))
    values.resize(1);
  held.k = held.v = {.values = std::move(values), .source = source};
}

}  // namespace

ScalesFileContent read_scales_file(const std::filesystem::path& path, const ModelConfig& config,
                                   int64_t tp_size) {
  const std::string text = read_text(path);  // a file that is not there is the user's mistake
  try {
    return {.rejection = {}, .layers = parse_scales(parse_json(text), config, tp_size)};
  } catch (const Error& error) {
    return {.rejection = error.message(), .layers = {}};
  }
}

bool uses_scales_file(const VerifyCase& subject) {
  return !subject.options.scales.empty() && takes_scales_file(subject.engine, subject.model_type);
}

namespace {

/// A file of the engine's own form, which says what cache its scales are for.
void apply_own_file(const VerifyCase& subject, VerifyReport& report, Findings& findings) {
  const fs::path& path = subject.options.scales;
  const std::string source = path.filename().string();
  try {
    const ScalesBeside scales = subject.engine.scales_file.read(path, subject.config);
    const auto held_of = [&](const std::vector<Scale>& side) {
      EngineScale held{.values = {}, .source = source};
      for (const Scale& scale : side) held.values.push_back(scale.value);
      return held;
    };
    for (EngineLayer& held : report.layers) {
      const LayerKvScales& own = scales.layers[static_cast<size_t>(held.layer)];
      held.k = held_of(own.k);
      held.v = held_of(own.v);
    }
    report.kv_cache_dtype = scales.format.is_int8() ? "int8" : "fp8_e4m3";
    findings.add(Severity::kNote, "it takes the scales from " + source + " alone",
                 "give it " + std::string(subject.engine.scales_file.argument) + " " + source);
  } catch (const SystemError&) {
    throw;  // a file that is not there is the user's mistake
  } catch (const Error& error) {
    report.loads = false;
    findings.add(Severity::kError, "it refuses " + source + ": " + error.message(), subject.remedy);
  }
}

}  // namespace

void apply_scales_file(const VerifyCase& subject, VerifyReport& report, Findings& findings) {
  const ScalesFileRules& rules = subject.engine.scales_file;
  const std::string source = subject.options.scales.filename().string();
  if (!rules.is_read) {
    findings.add(Severity::kError, "it does not read " + source, subject.remedy);
    return;
  }
  if (rules.read) {
    apply_own_file(subject, report, findings);
    return;
  }
  const ScalesFileContent content =
      read_scales_file(subject.options.scales, subject.config, subject.options.tp_size);
  const std::string arguments =
      std::string(subject.engine.fp8_argument) + " " + std::string(rules.argument) + " " + source;
  if (!subject.choice.is_fp8 || subject.choice.dtype == "fp8_e5m2") {
    findings.add(Severity::kNote, "it reads " + source + " for FP8 E4M3 caches only",
                 "give " + arguments);
    return;
  }
  if (!takes_scales_file(subject.engine, subject.model_type)) {
    report.loads = false;
    findings.add(Severity::kError,
                 "it refuses " + source + " for models of type " + subject.model_type,
                 subject.remedy);
    return;
  }
  const bool has_parameters = !(subject.miss && subject.miss->lacks_parameters) &&
                              !subject.rules.names.empty() && subject.choice.reads_scales;
  if (rules.conflicts_with_parameters && has_parameters) {
    report.loads = false;
    findings.add(Severity::kError,
                 "it stops at " + source + ": the scales are parameters with this " +
                     "quantization_config, and it assigns numbers to them",
                 "give the file, or the scales in the checkpoint");
    return;
  }
  if (!content.rejection.empty()) {
    findings.add(Severity::kError,
                 "it rejects " + source + " and uses 1.0 in every layer: " + content.rejection,
                 subject.remedy + " --tp-size " + std::to_string(subject.options.tp_size));
    return;
  }
  const float factor = rules.doubles_on_rocm && subject.options.is_rocm ? 2.0f : 1.0f;
  for (EngineLayer& held : report.layers)
    hold(held, content.layers[static_cast<size_t>(held.layer)], source, factor, findings);
  findings.add(Severity::kNote, "K and V share the one scale of each layer of " + source,
               "start it with " + arguments);
}

namespace {

/// How the engine's drafts of such models read scales; nullptr: not known.
const NameReading* reading_of(const VerifyCase& subject) {
  if (declares_weights(subject.declaration)) return nullptr;  // tried with 16-bit weights
  const auto found = subject.engine.seen().drafts.find(subject.model_type);
  return found == subject.engine.seen().drafts.end() ||
                 found->second.method != subject.declaration.method
             ? nullptr
             : &found->second;
}

class DraftChecker {
 public:
  /// config: with the draft layer.
  DraftChecker(const NameReading& reading, const ModelConfig& config, Findings& findings)
      : reading_(reading),
        layer_(config.num_hidden_layers),
        module_(draft_scale_module(config, layer_)),
        findings_(findings) {}

  void judge(const ScaleTensor& tensor) {
    using enum NameOutcome;
    const TriedName tried = tried_name(reading_, tensor.rest);
    if (tried.outcome == kRefused)
      findings_.add(layer_, Severity::kError, "its loader of drafts stops at " + tensor.name,
                    remedy(tried.side));
    else if (tried.outcome == kDropped)
      findings_.add(layer_, Severity::kWarning,
                    "its loader of drafts drops " + tensor.name +
                        ": an FP8 cache of the draft has the scale 1.0",
                    reading_.has(kLoaded) ? remedy(tried.side) : "");
    else if (tried.outcome == kNotTried)
      findings_.add(layer_, Severity::kNote,
                    "not known: what its loader of drafts does with " + tensor.name);
  }

  void tell_none() {
    if (reading_.has(NameOutcome::kLoaded))
      findings_.add(layer_, Severity::kWarning,
                    "the draft layer has no scales: the FP8 cache of the draft has the "
                    "scale 1.0",
                    "calibrate the model without --no-mtp");
  }

 private:
  std::string remedy(char side) const {
    return reading_.has(NameOutcome::kLoaded)
               ? "rename it to " + replaced(module_ + ".{}_scale", "{}", {&side, 1})
               : "remove the tensor";
  }

  const NameReading& reading_;
  int64_t layer_;
  std::string module_;  ///< with {} for k or v, as calibrate names the scales
  Findings& findings_;
};

}  // namespace

void check_draft_scales(const VerifyCase& subject, const ModelDir& model_dir, bool has_fp8_cache,
                        Findings& findings) {
  ModelConfig config = subject.config;
  SilentDiagnostics silent;
  find_draft_layer(model_dir, config, silent);
  if (!config.has_draft()) return;
  const std::vector<ScaleTensor> tensors = draft_scale_tensors(model_dir, config);
  if (!subject.engine.seen().runs_drafts) {
    if (!tensors.empty())
      findings.add(config.num_hidden_layers, Severity::kNote,
                   "it runs no draft layers and passes over the scales of this one");
    return;
  }
  const NameReading* reading = reading_of(subject);
  if (!reading) {
    if (!tensors.empty())
      findings.add(config.num_hidden_layers, Severity::kNote,
                   "not known: whether its drafts read the scales of the draft layer");
    return;
  }
  DraftChecker checker(*reading, config, findings);
  for (const ScaleTensor& tensor : tensors) checker.judge(tensor);
  if (tensors.empty() && has_fp8_cache) checker.tell_none();
}

}  // namespace kvcal
