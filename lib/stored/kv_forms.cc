#include "stored/kv_forms.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace kvcal {

std::span<const KvForm> kv_forms() {
  static constexpr std::array<KvForm, 5> kForms{{
      {.name = "compressed-tensors", .k = ".k_scale", .v = ".v_scale", .q = ".q_scale"},
      {.name = "modelopt", .k = ".k_proj.k_scale", .v = ".v_proj.v_scale"},
      {.name = "modelopt, fused", .k = ".qkv_proj.k_scale", .v = ".qkv_proj.v_scale"},
      // Quark's, and compressed-tensors' before its pull request 133.
      {.name = "output scales",
       .k = ".k_proj.output_scale",
       .v = ".v_proj.output_scale",
       .q = ".q_proj.output_scale"},
      {.name = "tgi", .k = ".kv_scale", .v = ".kv_scale"},
  }};
  return kForms;
}

const KvForm& kv_form(std::string_view name) {
  const auto form = std::ranges::find(kv_forms(), name, &KvForm::name);
  KVCAL_CHECK(form != kv_forms().end());
  return *form;
}

std::string zero_point_name(std::string_view scale_name) {
  constexpr std::string_view kScale = "scale";
  KVCAL_CHECK(scale_name.ends_with(kScale));
  return std::string(scale_name.substr(0, scale_name.size() - kScale.size())) + "zero_point";
}

}  // namespace kvcal
