#include <array>

#include "stored/stored_form.h"

namespace kvcal {

const StoredForm& tgi_form() {
  static constexpr std::array<KvForm, 1> kNames{
      {{.name = "tgi", .k = ".kv_scale", .v = ".kv_scale", .keys = KeyPosition::kBeforeRope}}};
  static const StoredForm kForm{.name = "tgi", .kv_names = kNames};
  return kForm;
}

}  // namespace kvcal
