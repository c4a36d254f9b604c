#include "model/fp8_schemes.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace kvcal {
namespace {

std::vector<std::string> strings_of(const Json& object, std::string_view key) {
  std::vector<std::string> strings;
  const Json* list = find_field(object, key);
  if (!list) return strings;
  if (!list->is_array()) fail_kind(key, "a list of strings", *list);
  for (const Json& entry : *list) {
    if (!entry.is_string()) fail("key '", key, "' holds ", entry.dump(), ", expected strings");
    strings.push_back(entry.get<std::string>());
  }
  return strings;
}

Strategy parse_strategy(const std::string& word) {
  for (const Strategy strategy :
       {Strategy::kTensor, Strategy::kChannel, Strategy::kGroup, Strategy::kBlock, Strategy::kToken,
        Strategy::kTensorGroup, Strategy::kAttnHead})
    if (word == name_of(strategy)) return strategy;
  fail("key 'strategy' is '", word, "', which is not known");
}

/// [rows, columns], as a list or as "128x128".
std::pair<int64_t, int64_t> parse_block(const Json& args) {
  const Json* block = find_field(args, "block_structure");
  const auto is_size = [](const Json& value) { return value.is_number_integer() && value >= 1; };
  if (!block || !block->is_array() || block->size() != 2 || !is_size(block->at(0)) ||
      !is_size(block->at(1)))
    fail("key 'block_structure' is ", block ? block->dump() : "absent", ", expected two sizes");
  return {block->at(0).get<int64_t>(), block->at(1).get<int64_t>()};
}

/// Common to weights and inputs: symmetric FP8. The strategy, decided as compressed-tensors does.
Strategy parse_fp8_args(const Json& args) {
  if (!args.is_object()) fail("found ", kind_of(args), ", expected an object or null");
  const std::string type = optional_string(args, "type").value_or("int");
  const int64_t bits = optional_int(args, "num_bits").value_or(8);
  if (type != "float" || bits != 8)
    fail("type '", type, "' of ", bits, " bits is not read, expected 'float' of 8 bits (FP8)");
  if (!optional_bool(args, "symmetric").value_or(true)) fail("asymmetric FP8 is not read");
  QuantArgs parsed;
  parsed.group_size = optional_int(args, "group_size");
  if (const auto word = optional_string(args, "strategy")) parsed.strategy = parse_strategy(*word);
  return resolved_strategy(parsed);
}

/// "dynamic" is true, false or "local".
bool is_dynamic(const Json& args) {
  const Json* dynamic = find_field(args, "dynamic");
  if (!dynamic) return false;
  if (!dynamic->is_boolean()) fail("key 'dynamic' is ", dynamic->dump(), ", which is not run");
  return dynamic->get<bool>();
}

void parse_weights(const Json& args, ModuleScheme& scheme) {
  scheme.strategy = parse_fp8_args(args);
  if (is_dynamic(args)) fail("weights with dynamic scales are not read");
  if (scheme.strategy == Strategy::kBlock) {
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block(args);
  } else if (scheme.strategy != Strategy::kTensor && scheme.strategy != Strategy::kChannel) {
    fail("strategy '", name_of(scheme.strategy),
         "' of FP8 weights is not read, expected tensor, channel or block");
  }
}

void parse_inputs(const Json& args, ModuleScheme& scheme) {
  const Strategy strategy = parse_fp8_args(args);
  if (!is_dynamic(args)) {
    if (strategy != Strategy::kTensor)
      fail("static inputs of strategy '", name_of(strategy), "' are not run, expected tensor");
    scheme.input = InputQuantization::kStatic;
  } else if (strategy == Strategy::kGroup) {
    scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = required_int(args, "group_size");
    if (scheme.group < 1) fail("key 'group_size' is ", scheme.group, ", expected 1 or more");
  } else if (strategy == Strategy::kToken || strategy == Strategy::kTensor) {
    // A scale of the whole batch would let a token depend on its neighbours; engines take one a
    // token there, too (vLLM's cutlass path).
    scheme.input = InputQuantization::kDynamicToken;
  } else {
    fail("dynamic inputs of strategy '", name_of(strategy),
         "' are not run, expected tensor, token or group");
  }
}

/// compressed-tensors' config groups. Which of a module's targets decides: exact names, then
/// patterns, each in the order of the alphabet, then class names; of groups that give the same
/// target, the last. Source: compressed-tensors 0.19 `apply_quantization_config`, `match_targets`.
class ConfigGroups : public ModuleSchemes {
 public:
  ConfigGroups(const Json& config, TargetMatcher matches)
      : matches_(matches), ignore_(strings_of(config, "ignore")) {
    const Json* groups = find_field(config, "config_groups");
    if (!groups) return;
    if (!groups->is_object()) fail_kind("config_groups", "an object of groups", *groups);
    for (const auto& [name, group] : groups->items())
      in_context("config_groups." + name, [&, &name = name, &group = group] { add(name, group); });
  }

  const ModuleScheme* find(const ModuleName& module) const override {
    const auto is_ignored = [&](const std::string& pattern) {
      return pattern == module.class_name || names(pattern, module);
    };
    if (std::ranges::any_of(ignore_, is_ignored)) return nullptr;
    // The keys of a map are in the alphabet's order; "re:" patterns come after exact names.
    for (const bool is_pattern : {false, true})
      for (const auto& [target, scheme] : targets_)
        if (target.starts_with("re:") == is_pattern && names(target, module))
          return scheme_of(scheme);
    const auto by_class = targets_.find(module.class_name);
    return by_class == targets_.end() ? nullptr : scheme_of(by_class->second);
  }

  bool is_empty() const {
    return std::ranges::none_of(schemes_, [](const auto& scheme) { return scheme.has_value(); });
  }

 private:
  void add(const std::string& name, const Json& group) {
    if (!group.is_object()) fail("found ", kind_of(group), ", expected an object");
    const Json* weights = find_field(group, "weights");
    const Json* inputs = find_field(group, "input_activations");
    if (find_field(group, "output_activations")) fail("FP8 outputs are not run");
    std::optional<ModuleScheme> scheme;
    // Inputs alone are those of attention modules, whose scales stand beside the cache's.
    if (weights) {
      scheme.emplace();
      scheme->source = "config group '" + name + "'";
      in_context("weights", [&] { parse_weights(*weights, *scheme); });
      if (inputs) in_context("input_activations", [&] { parse_inputs(*inputs, *scheme); });
    }
    for (const std::string& target : strings_of(group, "targets"))
      targets_[target] = schemes_.size();
    schemes_.push_back(std::move(scheme));
  }

  /// By the name in the checkpoint, or transformers' own.
  bool names(const std::string& pattern, const ModuleName& module) const {
    return matches_(pattern, module.name, "") ||
           (!module.alias.empty() && matches_(pattern, module.alias, ""));
  }

  const ModuleScheme* scheme_of(size_t index) const {
    return schemes_[index] ? &*schemes_[index] : nullptr;
  }

  TargetMatcher matches_;
  std::vector<std::string> ignore_;
  std::vector<std::optional<ModuleScheme>> schemes_;
  std::map<std::string, size_t, std::less<>> targets_;
};

/// One scheme for all Linears that a list does not except.
class OneScheme : public ModuleSchemes {
 public:
  enum class Exceptions { kNames, kWildcards };
  OneScheme(ModuleScheme scheme, std::vector<std::string> except, Exceptions how,
            bool leaves_choice)
      : scheme_(std::move(scheme)),
        except_(std::move(except)),
        how_(how),
        leaves_choice_(leaves_choice) {}

  const ModuleScheme* find(const ModuleName& module) const override {
    const auto is_excepted = [&](const std::string& entry) {
      if (entry == module.name) return true;
      if (how_ == Exceptions::kNames) return false;
      // Older ModelOpt lists parts of names. Source: vLLM 0.32 `is_layer_excluded`.
      return module.name.find(entry) != std::string::npos ||
             ::fnmatch(entry.c_str(), module.name.c_str(), FNM_NOESCAPE) == 0;
    };
    if (module.class_name == "Embedding" || std::ranges::any_of(except_, is_excepted))
      return nullptr;
    return &scheme_;
  }
  bool leaves_choice() const override { return leaves_choice_; }

 private:
  ModuleScheme scheme_;
  std::vector<std::string> except_;
  Exceptions how_;
  bool leaves_choice_;
};

std::unique_ptr<ModuleSchemes> read_compressed_tensors(const Json& config, TargetMatcher matches) {
  if (const Json* kv = find_field(config, "kv_cache_scheme"))
    in_context("kv_cache_scheme", [&] { parse_fp8_args(*kv); });
  auto groups = std::make_unique<ConfigGroups>(config, matches);
  if (groups->is_empty()) return nullptr;
  return groups;
}

/// Source: vLLM 0.32 `resolve` of modelopt.py: what each word stands for.
std::unique_ptr<ModuleSchemes> read_modelopt(const Json& config, std::string_view exclude_key) {
  const auto written = optional_string(config, "quant_algo");
  if (!written) return nullptr;  // KV scales alone
  std::string algo = *written;
  std::ranges::transform(algo, algo.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  ModuleScheme scheme;
  scheme.source = "quant_algo " + algo;
  if (algo == "FP8") {
    scheme.input = InputQuantization::kStatic;
  } else if (algo == "FP8_PER_CHANNEL_PER_TOKEN") {
    scheme.strategy = Strategy::kChannel;
    scheme.input = InputQuantization::kDynamicToken;
  } else if (algo == "FP8_PB_WO") {
    scheme.strategy = Strategy::kBlock;
    scheme.block_rows = scheme.block_columns = scheme.group = 128;
    scheme.input = InputQuantization::kDynamicGroup;
  } else {
    fail("key 'quant_algo' is '", *written,
         "', whose weights are not read; expected FP8, FP8_PER_CHANNEL_PER_TOKEN or FP8_PB_WO");
  }
  return std::make_unique<OneScheme>(std::move(scheme), strings_of(config, exclude_key),
                                     OneScheme::Exceptions::kWildcards, false);
}

/// AutoFP8's form, a scale a tensor, and DeepSeek's, a scale a block. What is not listed and has 16
/// bits all the same (routers, lm_head) is left so by all who write it.
std::unique_ptr<ModuleSchemes> read_fp8(const Json& config) {
  ModuleScheme scheme;
  scheme.source = "quant_method fp8";
  const std::string activation = optional_string(config, "activation_scheme").value_or("dynamic");
  if (activation != "static" && activation != "dynamic")
    fail("key 'activation_scheme' is '", activation, "', expected static or dynamic");
  const bool is_static = activation == "static";
  scheme.input = is_static ? InputQuantization::kStatic : InputQuantization::kDynamicToken;
  if (const Json* block = find_field(config, "weight_block_size")) {
    if (is_static) fail("activation_scheme static does not go with weight_block_size");
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block({{"block_structure", *block}});
    scheme.strategy = Strategy::kBlock;
    scheme.scale_name = ".weight_scale_inv";
    scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = scheme.block_columns;
    scheme.infers_groups = true;
  }
  std::vector<std::string> except = strings_of(config, "ignored_layers");
  std::ranges::copy(strings_of(config, "modules_to_not_convert"), std::back_inserter(except));
  return std::make_unique<OneScheme>(std::move(scheme), std::move(except),
                                     OneScheme::Exceptions::kNames, true);
}

}  // namespace

std::unique_ptr<ModuleSchemes> read_module_schemes(const ModelDir& model_dir,
                                                   TargetMatcher matches) {
  constexpr std::string_view kModelOptName = "hf_quant_config.json";
  if (const Json* config = find_field(model_dir.config(), "quantization_config"))
    return in_context((model_dir.path() / "config.json").string() + ": quantization_config",
                      [&]() -> std::unique_ptr<ModuleSchemes> {
                        const std::string method =
                            optional_string(*config, "quant_method").value_or("");
                        if (method == "compressed-tensors")
                          return read_compressed_tensors(*config, matches);
                        if (method == "fp8") return read_fp8(*config);
                        if (!method.starts_with("modelopt")) return nullptr;
                        const Json* nested = find_field(*config, "quantization");
                        return nested ? read_modelopt(*nested, "exclude_modules")
                                      : read_modelopt(*config, "ignore");
                      });
  const fs::path file = model_dir.path() / kModelOptName;
  if (!fs::exists(file)) return nullptr;
  return in_context(file.string(), [&]() -> std::unique_ptr<ModuleSchemes> {
    const Json json = parse_json(read_text(file));
    const Json* config = find_field(json, "quantization");
    if (!config || !config->is_object()) fail_missing("quantization", "an object");
    return read_modelopt(*config, "exclude_modules");
  });
}

}  // namespace kvcal
