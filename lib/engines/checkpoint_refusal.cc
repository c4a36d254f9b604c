#include <algorithm>

#include "core/file.h"
#include "engines/loaded_checkpoint.h"
#include "engines/scale_loading.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

bool knows_method(const VerifyCase& subject) {
  const auto& others = subject.engine.reading.other_methods;
  const std::string& method = subject.declaration.method;
  return others.empty() || method.empty() || &subject.rules != &subject.engine.otherwise ||
         std::ranges::find(others, method) != others.end();
}

/// Whether some layers of a model have a window and others have none, where the engine takes no
/// such model.
bool has_some_windows(const EngineRules& engine, const ModelConfig& config) {
  const auto& types = engine.one_window_types;
  if (std::ranges::find(types, config.model_type) == types.end()) return false;
  const std::vector<int64_t> layers = config.attention_layers();
  const auto windows = std::ranges::count_if(layers, [&](int64_t layer) {
    return config.layers[static_cast<size_t>(layer)].sliding_window > 0;
  });
  return windows > 0 && windows < std::ssize(layers);
}

constexpr std::string_view kSomeWindows =
    "it takes a sliding window of all layers or of none, and layers from max_window_layers on have "
    "one";

/// Why the engine refuses config.json; empty: it does not. Source: transformers 5.17,
/// `PretrainedConfig`, which the engines read it with.
std::string config_refusal(const VerifyCase& subject, const ModelDir& model_dir) {
  const ConfigReading& reading = subject.engine.reading;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (read_text(model_dir.path() / "config.json", kSmallFileLimits.max_bytes)
          .starts_with(kByteOrderMark))
    return "config.json begins with a byte order mark, which is no JSON to it";
  for (const char* key : {"torch_dtype", "dtype"})
    if (reading.refuses_auto_type && model_dir.config().value(key, Json()) == "auto")
      return "config.json's " + std::string(key) + " is \"auto\"";
  const std::string& dtype = subject.config.dtype;
  if (!dtype.empty() && !is_dtype_of_torch(dtype))
    return "config.json's dtype is '" + dtype + "', and torch has no such dtype";
  if (subject.engine.run_dtype.refuses_float64 && subject.dtype == "float64" &&
      !subject.declaration.method.empty())
    return "it runs no quantized model in float64";
  const std::string& asked = subject.options.kv_cache_dtype;
  if (subject.engine.run_dtype.refuses_other_half && (asked == "float16" || asked == "bfloat16") &&
      asked != subject.dtype)
    return "it takes no cache of " + asked + " with a model that runs in " + subject.dtype;
  const auto& refused = subject.engine.refused_caches;
  if (std::ranges::find(refused, asked) != refused.end()) return "it has no cache of " + asked;
  if (has_some_windows(subject.engine, subject.config)) return std::string(kSomeWindows);
  if (subject.config.wrapper_type.empty())
    if (std::string failed = failed_key(reading.model, model_dir.config()); !failed.empty())
      return "config.json's " + failed;
  return {};
}

/// The name of a packed weight, of experts or of other modules; empty: there is none.
std::string packed_weight(const ModelDir& model_dir, bool of_experts) {
  for (const std::string& name : model_dir.tensor_names())
    if (name.ends_with(".weight_packed") &&
        (name.find(".experts.") != std::string::npos) == of_experts)
      return name;
  return {};
}

}  // namespace

const Miss* refusal_inside(const EngineRules& engine, MissQuery query, const ModelConfig& config) {
  const EngineAnswers& seen = engine.seen();
  if (!seen.has_run(query.model_type) ||
      seen.has_run(query.model_type, config.model_type, *query.config))
    return nullptr;
  query.model_type = config.model_type;
  const Miss* miss = find_miss(seen, query);
  return miss && (miss->effect == MissEffect::kNoModel || miss->effect == MissEffect::kRefused)
             ? miss
             : nullptr;
}

std::string model_refusal(const EngineRules& engine, const ModelConfig& config, const Json& json) {
  if (has_some_windows(engine, config)) return std::string(kSomeWindows);
  const std::string model_type = required_string(json, "model_type");
  const MissQuery query{.model_type = model_type, .method = {}, .config = &json};
  // A verdict on the type alone knows nothing of config.json.
  const Miss* whole = find_miss(engine.seen(), query);
  if (whole && whole->effect == MissEffect::kNoModel && !whole->settings.empty()) return whole->why;
  const Miss* inside = refusal_inside(engine, query, config);
  return inside && inside->effect == MissEffect::kNoModel
             ? "of the " + config.model_type + " inside, " + inside->why
             : std::string();
}

std::string refusal_of(const VerifyCase& subject, const ModelDir& model_dir) {
  const CacheDeclaration& declaration = subject.declaration;
  const ConfigReading& reading = subject.engine.reading;
  if (std::string refusal = config_refusal(subject, model_dir); !refusal.empty()) return refusal;
  if (!declaration.refusal.empty()) return declaration.refusal;
  const auto written = model_dir.config().find("quantization_config");
  if (reading.refuses_null_config && written != model_dir.config().end() && written->is_null())
    return "config.json's quantization_config is null";
  if (reading.needs_method && declaration.config.is_object() && declaration.method.empty() &&
      value_of(declaration.config, "quant_method").is_null())
    return "its quantization_config has no quant_method";
  if (!knows_method(subject)) return "it does not know quant_method " + declaration.method;
  if (subject.rules.needs_targets && !subject.miss && lacks_targets(declaration) &&
      subject.choice.refusal.empty())
    return "config_groups are empty and ignore does not name Linear, and it wants a target of "
           "every "
           "Linear";
  if (subject.rules.packs_experts_alone && subject.choice.refusal.empty())
    if (const std::string name = packed_weight(model_dir, false); !name.empty())
      return "it takes packed weights of experts alone, and there is " + name;
  if (subject.rules.refuses_packed_experts && subject.choice.refusal.empty() &&
      value_of(declaration.config, "format") == "pack-quantized")
    if (const std::string name = packed_weight(model_dir, true); !name.empty())
      return "its loader of experts takes no packed weights, and there is " + name;
  return subject.choice.refusal;
}

}  // namespace kvcal
