#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvcal {

/// Position at which K was observed for its scale. RoPE rotates pairs of channels, so the largest
/// magnitude may grow or shrink by up to √2.
enum class KeyPosition : uint8_t { kAfterRope, kBeforeRope, kNotSaid };
std::string_view name_of(KeyPosition position);

/// Names of the scales of a layer's K, V and queries, after the name of the attention module.
struct KvForm {
  std::string_view name;
  std::string_view k, v;                        ///< equal where one scale serves both
  std::string_view q = {};                      ///< empty: the form has no query scales
  KeyPosition keys = KeyPosition::kBeforeRope;  ///< position of the usual writer
};

/// Name of the scale of softmax weights beside those of a module. No engine's reader of it is known
/// to use it: vLLM 0.32 loads it as _prob_scale, which no backend reads.
inline constexpr std::string_view kProbScale = ".prob_output_scale";

/// The forms of all StoredForms; the default of our output is first. Sources: compressed-tensors
/// 0.19; vLLM 0.32 `maybe_remap_kv_scale_name`, `get_cache_scale_mapper`, fp8.py and quark.py; TGI
/// `get_kv_scales`. Writers: llm-compressor 0.14 and ModelOpt 0.47 observe K after RoPE; AMD Quark
/// 0.13, AutoFP8, TGI's create_fp8_kv_scales_model.py and AMMO 0.7 the outputs of k_proj.
std::span<const KvForm> kv_forms();

/// The form with this name, which must exist.
const KvForm& kv_form(std::string_view name);

/// Name of the zero point for a scale: ".k_zero_point" for ".k_scale".
std::string zero_point_name(std::string_view scale_name);

}  // namespace kvcal
