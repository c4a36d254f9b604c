#pragma once

#include <string_view>

#include "core/json.h"

namespace kvcal {

/// object[key]; nullptr where object is no object, or the key is absent or null.
inline const Json* member(const Json& object, std::string_view key) {
  return object.is_object() ? find_field(object, key) : nullptr;
}

}  // namespace kvcal
