#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/registry.h"
#include "core/text.h"
#include "quant/module_target.h"
#include "stored/coded_matrix.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// How the weights of some Linears are stored.
struct Settings {
  int64_t bits = 4;
  int64_t group = 128;  ///< 0: one for all columns
  auto operator<=>(const Settings&) const = default;
};

Settings settings_of(const Json& config, const Settings& otherwise) {
  Settings settings = otherwise;
  if (const auto bits = optional_int(config, "bits")) settings.bits = *bits;
  if (find_field(config, "group_size")) settings.group = positive_group(config, "group_size");
  return settings;
}

/// Packing of integers. Source: auto-round 0.16 `inference/backend.py`, where GPTQ_FORMAT stores
/// zero points less one and GPTQ_FORMAT_NO_ZP as they are.
enum class Packing : uint8_t { kGptq, kGptqV2, kAwq };

Packing packing_of(const std::string& packing) {
  std::string name = normalised_name(packing);
  constexpr std::string_view kOwn = "auto_round:";
  if (name.starts_with(kOwn)) name.erase(0, kOwn.size());
  if (name == "auto" || name == "auto_gptq" || name == "gptq") return Packing::kGptq;
  if (name == "auto_awq" || name == "awq") return Packing::kAwq;
  if (name == "auto_round" || name == "gptqmodel") return Packing::kGptqV2;
  fail("key 'packing_format' is '", packing,
       "', which is not read for integers; expected auto_round:auto_gptq, auto_round:auto_awq, "
       "auto_round:gptqmodel or auto_round");
}

/// Weights of AutoRound's own config: GPTQ's or AWQ's tensors, or powers of two for 32 columns as
/// compressed-tensors stores them. extra_config has settings of single Linears. Source: vLLM 0.32
/// `INCConfigParser`.
class LayerSchemes {
 public:
  explicit LayerSchemes(const Json& config)
      : settings_(settings_of(config, {})),
        data_type_(normalised_name(optional_string(config, "data_type").value_or("int"))),
        blocks_(blocks_of(config)) {
    if (data_type_ == "int")
      packing_ = packing_of(optional_string(config, "packing_format").value_or("auto"));
    if (const Json* extra = find_field(config, "extra_config"); extra && extra->is_object())
      for (const auto& [name, one] : extra->items())
        in_context("extra_config." + name, [&, &name = name, &one = one] {
          if (!one.is_object()) fail("found ", kind_of(one), ", expected an object");
          check_type(one);
          extra_.emplace_back(name, settings_of(one, settings_));
          add(extra_.back().second, config);
        });
    add(settings_, config);
  }

  const ModuleScheme* operator()(const ModuleName& module) const {
    if (module.class_name == "Embedding") return nullptr;
    const auto own = own_settings(module);
    if (!own && !is_in_blocks(module)) return nullptr;
    const auto found = schemes_.find(own.value_or(settings_));
    return found == schemes_.end() ? nullptr : &found->second;
  }

 private:
  static std::vector<std::string> blocks_of(const Json& config) {
    for (const char* key : {"block_name_to_quantize", "to_quant_block_names"}) {
      const Json* value = find_field(config, key);
      if (!value) continue;
      if (!value->is_string()) return strings_of(config, key);
      auto blocks = split(value->get_ref<const std::string&>(), ',');
      if (blocks.back().empty()) blocks.pop_back();
      return {blocks.begin(), blocks.end()};
    }
    return {};
  }

  /// Throws Error where a Linear has codes of another type than the rest.
  void check_type(const Json& one) const {
    const auto type = optional_string(one, "data_type");
    const bool is_16_bit = optional_int(one, "bits").value_or(settings_.bits) >= 16;
    if (type && !is_16_bit && normalised_name(*type) != data_type_)
      fail("key 'data_type' is '", *type, "', expected that of the rest, ", data_type_);
  }

  /// Adds the scheme of settings, unless it is there; none for 16 bits.
  void add(const Settings& settings, const Json& config) {
    if (settings.bits >= 16 || schemes_.contains(settings)) return;
    ModuleScheme scheme = scheme_of_method("auto-round");
    scheme.storage = storage_of(settings);
    if (data_type_ != "int" && optional_int(config, "act_bits").value_or(16) < 16)
      scheme.unrun_input = scheme.source + " quantizes inputs to " + data_type_;
    schemes_.emplace(settings, std::move(scheme));
  }

  CodeFormat storage_of(const Settings& settings) const {
    const auto [bits, group] = settings;
    if (data_type_.starts_with("mx_fp") && group == 32) {
      if (bits == 4) return fp4_codes({.group = 32, .has_exponents = true});
      if (bits == 8) return mxfp8_codes();
    }
    if (data_type_ != "int")
      fail("data_type '", data_type_, "' of ", counted(bits, "bit"), " in groups of ", group,
           " is not read; expected int, or mx_fp of 4 or 8 bits in groups of 32");
    const bool is_awq = packing_ == Packing::kAwq;
    if (is_awq ? bits != 4 : bits != 2 && bits != 3 && bits != 4 && bits != 8)
      fail("key 'bits' is ", bits, ", expected ", is_awq ? "4" : "2, 3, 4 or 8");
    if (is_awq) return awq_integers(group);
    return gptq_integers({.bits = static_cast<int>(bits),
                          .group = group,
                          .stores_less_one = packing_ == Packing::kGptq});
  }

  /// Settings that the config has for the module: by its name, its end, or a pattern.
  std::optional<Settings> own_settings(const ModuleName& module) const {
    constexpr std::string_view kSpecial = "*+?^$()[]{}|\\";
    const auto is_named = [&](const std::string& name, const std::string& by) {
      return !name.empty() && (name == by || name.ends_with("." + by));
    };
    for (const auto& [by, settings] : extra_)
      if (is_named(module.name, by) || is_named(module.alias, by)) return settings;
    for (const auto& [by, settings] : extra_)
      if (by.find_first_of(kSpecial) != std::string::npos &&
          matches_target("re:.*(?:" + by + ")", module.name))
        return settings;
    return std::nullopt;
  }

  bool is_in_blocks(const ModuleName& module) const {
    if (blocks_.empty()) return module.role != Role::kLmHead;
    return std::ranges::any_of(blocks_, [&](const std::string& block) {
      return module.name.starts_with(block) || module.alias.starts_with(block);
    });
  }

  Settings settings_;
  std::string data_type_;
  std::vector<std::string> blocks_;
  Packing packing_ = Packing::kGptq;
  std::vector<std::pair<std::string, Settings>> extra_;
  std::map<Settings, ModuleScheme> schemes_;
};

/// FP8 with a scale for the tensor (group_size 0), each row (-1) or each block. Source: auto-round
/// 0.16 `export_to_fp8.py`.
ModuleSchemes read_auto_round_fp8(const Json& config) {
  ModuleScheme scheme = scheme_of_method("auto-round");
  const bool has_static = !optional_bool(config, "act_dynamic").value_or(true);
  const bool has_inputs = optional_int(config, "act_bits").value_or(16) < 16;
  if (has_inputs)
    scheme.input = has_static ? InputQuantization::kStatic : InputQuantization::kDynamicToken;
  const Json* group = find_field(config, "group_size");
  if (group && group->is_array()) {
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block("group_size", group);
    scheme.strategy = Strategy::kBlock;
    scheme.scale_names = {".weight_scale_inv", ".weight_scale"};
    if (has_inputs) scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = scheme.block_columns;
    scheme.infers_groups = true;
  } else if (group && *group == -1) {
    scheme.strategy = Strategy::kChannel;
  } else if (!group || *group != 0) {
    fail("key 'group_size' is ", group ? group->dump() : "absent",
         ", expected 0, -1 or two sizes for FP8");
  }
  std::vector<std::string> except{"lm_head"};
  if (const Json* extra = find_field(config, "extra_config"); extra && extra->is_object())
    for (const auto& [name, one] : extra->items()) {
      if (!one.is_object() || optional_int(one, "bits").value_or(8) < 16)
        fail("key 'extra_config.", name, "' is ", one.dump(), ", expected bits of 16");
      except.push_back(name);
    }
  return all_but(std::move(except), ExceptionMatch::kParts, std::move(scheme));
}

ModuleSchemes read_auto_round(const QuantizationConfig& source) {
  const Json& config = source.json;
  if (const Json* rotation = find_field(config, "rotation_config"); rotation && !rotation->empty())
    fail("key 'rotation_config' asks for rotations of inputs, which are not run; expected none");
  const std::string type = normalised_name(optional_string(config, "data_type").value_or("int"));
  if (type == "fp" || type == "fp8" || means_e4m3fn(type)) return read_auto_round_fp8(config);
  return LayerSchemes(config);
}

}  // namespace

/// AutoRound's own config. Its exports to other formats have those formats' configs.
extern constinit const StoredFormat kAutoRoundFormat{
    .name = "auto-round", .method = "auto-round", .read_schemes = read_auto_round};

}  // namespace kvcal
