#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvcal {

/// What one kind of checkpoint calls the scales of a layer's K, V and queries, behind the name of
/// the attention module.
struct KvForm {
  std::string_view name;
  std::string_view k, v;    ///< the same where one scale serves both
  std::string_view q = {};  ///< empty: the form has none
};

/// All forms that are read, the one we write by default first. Sources: compressed-tensors 0.19;
/// vLLM 0.32 `maybe_remap_kv_scale_name`, `get_cache_scale_mapper`, fp8.py and quark.py; TGI
/// `get_kv_scales`.
std::span<const KvForm> kv_forms();

/// The one of that name, which the table has.
const KvForm& kv_form(std::string_view name);

/// The name of the zero points beside scales: ".k_zero_point" for ".k_scale".
std::string zero_point_name(std::string_view scale_name);

}  // namespace kvcal
