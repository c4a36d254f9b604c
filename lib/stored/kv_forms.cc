#include "stored/kv_forms.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "stored/stored_form.h"

namespace kvcal {

std::string_view name_of(KeyPosition position) {
  switch (position) {
    case KeyPosition::kAfterRope:
      return "after_rope";
    case KeyPosition::kBeforeRope:
      return "before_rope";
    case KeyPosition::kNotSaid:
      return "not_said";
  }
  return "";
}

std::span<const KvForm> kv_forms() {
  static const std::vector<KvForm> kForms = [] {
    std::vector<KvForm> all;
    for (const StoredForm* form : stored_forms())
      all.insert(all.end(), form->kv_names.begin(), form->kv_names.end());
    return all;
  }();
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
