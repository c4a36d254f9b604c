#pragma once

#include <string_view>

#include "core/json.h"

namespace kvcal {

/// object[key] where object is one and the key is there and not null; else nullptr.
inline const Json* member(const Json& object, std::string_view key) {
  return object.is_object() ? find_field(object, key) : nullptr;
}

}  // namespace kvcal
