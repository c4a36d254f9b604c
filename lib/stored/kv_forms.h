#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvcal {

/// Where K was when its scale was made of it. RoPE turns pairs of channels: the largest magnitude
/// after it may be up to √2 times that before, or as much smaller.
enum class KeyPosition : uint8_t { kAfterRope, kBeforeRope, kNotSaid };
std::string_view name_of(KeyPosition position);

/// Names of the scales of a layer's K, V and queries, behind the name of the attention module.
struct KvForm {
  std::string_view name;
  std::string_view k, v;                        ///< the same where one scale serves both
  std::string_view q = {};                      ///< empty: the form has none
  KeyPosition keys = KeyPosition::kBeforeRope;  ///< of the usual writer
};

/// Those of all StoredForms, the one we write by default first. Sources: compressed-tensors 0.19;
/// vLLM 0.32 `maybe_remap_kv_scale_name`, `get_cache_scale_mapper`, fp8.py and quark.py; TGI
/// `get_kv_scales`. Writers: llm-compressor 0.14 and ModelOpt 0.47 observe K after RoPE; AMD Quark
/// 0.13, AutoFP8, TGI's create_fp8_kv_scales_model.py and AMMO 0.7 the outputs of k_proj.
std::span<const KvForm> kv_forms();

/// The one of that name, which the table has.
const KvForm& kv_form(std::string_view name);

/// The name of the zero points beside scales: ".k_zero_point" for ".k_scale".
std::string zero_point_name(std::string_view scale_name);

}  // namespace kvcal
