#include "stored/compressed_tensors_schemes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/registry.h"
#include "family/config_reader.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

// Source: compressed-tensors 0.19 `QuantizationArgs` and `QuantizationScheme`, which refuse others.
constexpr std::array<std::string_view, 12> kArgsKeys{
    "num_bits", "type",     "symmetric",   "group_size", "strategy", "block_structure",
    "dynamic",  "actorder", "scale_dtype", "zp_dtype",   "observer", "observer_kwargs"};
constexpr std::array<std::string_view, 5> kGroupKeys{"targets", "weights", "input_activations",
                                                     "output_activations", "format"};
/// Those of compressed-tensors' `QuantizationConfig` and of `ModelCompressor`, those that
/// transformers' `CompressedTensorsConfig` saves, and names of who wrote the file.
constexpr std::array<std::string_view, 15> kConfigKeys{
    "config_groups",   "format",           "global_compression_ratio", "ignore",
    "kv_cache_scheme", "quant_method",     "quantization_status",      "sparsity_config",
    "version",         "transform_config", "run_compressed",           "dequantize",
    "producer",        "provider",         "use_optimized_inference"};

/// How FP8 weights lie in the file: codes as they are. A config that was never saved with a format
/// says "fakequant".
constexpr std::array<std::string_view, 6> kFormats{
    "dense", "fakequant", "float-quantized", "int-quantized", "naive-quantized", "mixed-precision"};
constexpr std::array<std::string_view, 7> kOtherFormats{
    "pack-quantized",  "marlin-24",      "nvfp4-pack-quantized", "mxfp4-pack-quantized",
    "mxfp8-quantized", "sparse-bitmask", "sparse-24-bitmask"};

void check_format(const Json& object) {
  const auto format = optional_string(object, "format");
  if (!format || std::ranges::find(kFormats, *format) != kFormats.end()) return;
  const bool is_known = std::ranges::find(kOtherFormats, *format) != kOtherFormats.end();
  fail("key 'format' is '", *format, "', which is not read",
       is_known ? "" : did_you_mean(*format, {kFormats.begin(), kFormats.end()}),
       "; expected float-quantized, naive-quantized, mixed-precision or dense");
}

/// Rotations that an engine applies before Linears and in attention.
void check_transforms(const Json& config) {
  const Json* transforms = find_field(config, "transform_config");
  if (!transforms || transforms->empty()) return;
  const Json* groups =
      transforms->is_object() ? find_field(*transforms, "config_groups") : transforms;
  if (groups && !groups->empty())
    fail(
        "key 'transform_config' asks for transforms of weights or inputs, which are not run; "
        "expected none");
}

void check_sparsity(const Json& config) {
  const Json* sparsity = find_field(config, "sparsity_config");
  if (!sparsity || sparsity->empty()) return;
  const auto format = in_context(
      "sparsity_config", [&] { return optional_string(*sparsity, "format").value_or("dense"); });
  if (format != "dense")
    fail("key 'sparsity_config.format' is '", format, "', which is not read; expected dense");
}

Strategy parse_strategy(const std::string& word) {
  for (const Strategy strategy :
       {Strategy::kTensor, Strategy::kChannel, Strategy::kGroup, Strategy::kBlock, Strategy::kToken,
        Strategy::kTensorGroup, Strategy::kAttnHead})
    if (word == name_of(strategy)) return strategy;
  fail("key 'strategy' is '", word, "', which is not known");
}

int64_t positive(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0 ? value : 0;
}

}  // namespace

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

std::pair<int64_t, int64_t> parse_block(std::string_view key, const Json* block) {
  std::vector<int64_t> sides;
  if (block && block->is_string()) {
    const std::string_view text = block->get_ref<const std::string&>();
    if (const size_t x = text.find('x'); x != std::string_view::npos)
      sides = {positive(text.substr(0, x)), positive(text.substr(x + 1))};
  } else if (block && block->is_array()) {
    for (const Json& side : *block)
      sides.push_back(side.is_number_integer() ? side.get<int64_t>() : 0);
  }
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMaxWidth; };
  if (sides.size() != 2 || !is_side(sides[0]) || !is_side(sides[1]))
    fail("key '", key, "' is ", block ? block->dump() : "absent", ", expected two sizes");
  return {sides[0], sides[1]};
}

Strategy parse_fp8_args(const Json& args) {
  if (!args.is_object()) fail("found ", kind_of(args), ", expected an object or null");
  check_keys(args, kArgsKeys);
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

bool is_dynamic(const Json& args) {
  const Json* dynamic = find_field(args, "dynamic");
  if (!dynamic) return false;
  if (!dynamic->is_boolean()) fail("key 'dynamic' is ", dynamic->dump(), ", which is not run");
  return dynamic->get<bool>();
}

namespace {

void parse_weights(const Json& args, ModuleScheme& scheme) {
  scheme.strategy = parse_fp8_args(args);
  if (is_dynamic(args)) fail("weights with dynamic scales are not read");
  if (scheme.strategy == Strategy::kBlock) {
    constexpr const char* kKey = "block_structure";
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block(kKey, find_field(args, kKey));
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
    check_keys(group, kGroupKeys);
    check_format(group);
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

}  // namespace

std::unique_ptr<ModuleSchemes> read_compressed_tensors(const Json& config, TargetMatcher matches) {
  check_keys(config, kConfigKeys);
  check_format(config);
  check_transforms(config);
  check_sparsity(config);
  auto groups = std::make_unique<ConfigGroups>(config, matches);
  if (groups->is_empty()) return nullptr;
  return groups;
}

}  // namespace kvcal
