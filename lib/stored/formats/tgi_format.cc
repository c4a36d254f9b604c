#include <array>

#include "stored/stored_format.h"

namespace kvcal {

const StoredFormat& tgi_format() {
  static constexpr std::array<KvScaleNames, 1> kNames{
      {{.name = "tgi", .k = ".kv_scale", .v = ".kv_scale", .keys = KeyPosition::kBeforeRope}}};
  static const StoredFormat kForm{.name = "tgi", .kv_names = kNames};
  return kForm;
}

}  // namespace kvcal
