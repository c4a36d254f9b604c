#include <algorithm>
#include <cmath>
#include <optional>

#include "core/file.h"
#include "engines/scale_loading.h"

namespace kvcal {
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
    fail(name, " has ", counted(rank.size(), "layer"), ", the model ", num_layers);
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
    fail("kv_cache.scaling_factor has ", counted(ranks->size(), "rank"), ", the engine runs ",
         tp_size);
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
                 "give it " + file_argument(subject.engine.scales_file, source));
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
      std::string(subject.engine.fp8_argument) + " " + file_argument(rules, source);
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

}  // namespace kvcal
