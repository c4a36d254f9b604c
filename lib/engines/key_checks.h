#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace kvcal {

/// The values that an engine takes for a key of an object.
struct KeyCheck {
  /// "a.b": key b of the object a, "a.*": each value of it; passed over where a is none.
  std::string_view key;
  /// JSON texts, compared as Python does (8.0 is 8), "an object with KEY", or kinds of values, by
  /// the names of key_checks.cc.
  std::vector<std::string_view> accepted;
  bool may_lack = false;
  bool ignores_case = false;
  std::vector<KeyCheck> when = {};  ///< it counts only where the object passes these
};

/// "strategy is "channel", it takes "tensor" or "attn_head"" for the first check that fails; empty
/// where all hold. Anything that is no object lacks every key.
std::string failed_key(const std::vector<KeyCheck>& checks, const Json& object);

/// A key of an object; null where there is none, and for anything that is no object.
Json value_of(const Json& object, std::string_view key);

/// Whether Python takes the value for false: null, false, 0, and what is empty.
bool is_nothing(const Json& value);

/// Of compressed-tensors: columns of weights in the order of activations (weight_g_idx), which vLLM
/// 0.32 and compressed-tensors from 0.19 on refuse.
inline const KeyCheck kNoColumnOrder{.key = "config_groups.*.weights.actorder",
                                     .accepted = {"null", "false", "\"weight\"", "\"static\""},
                                     .may_lack = true};

/// Of compressed-tensors, where it describes sparse weights.
inline const KeyCheck kSparsity{
    .key = "sparsity_config", .accepted = {"nothing", "an object with format"}, .may_lack = true};

/// Of quant_method fp8, in engines of vLLM's kind. Source: vLLM 0.33 and SGLang 0.5.23,
/// `Fp8Config`.
inline const std::vector<KeyCheck> kFp8Checks{
    {.key = "activation_scheme", .accepted = {"\"static\"", "\"dynamic\""}},
    {.key = "ignored_layers",
     .accepted = {"nothing", "a list", "a text", "an object"},
     .may_lack = true},
    {.key = "weight_block_size", .accepted = {"null", "a list of two"}, .may_lack = true},
    {.key = "activation_scheme",
     .accepted = {"\"dynamic\""},
     .when = {{.key = "weight_block_size", .accepted = {"a list"}}}}};

/// Of quant_method quark, in engines of vLLM's kind.
inline const std::vector<KeyCheck> kQuarkChecks{
    {.key = "export", .accepted = {"an object"}},
    {.key = "export.kv_cache_group", .accepted = {"a list", "a text", "an object"}},
    {.key = "layer_quant_config",
     .accepted = {"an object"},
     .when = {{.key = "export.kv_cache_group", .accepted = {"something"}}}},
    {.key = "layer_quant_config.*q_proj", .accepted = {"an object", "null"}, .may_lack = true}};

}  // namespace kvcal
