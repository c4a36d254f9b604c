#pragma once

#include <string>
#include <utility>

#include "core/json.h"

namespace kvcal {

/// Adds a field whose key the object does not have, and returns it. object[key] looks for the key
/// from the front, so that many keys would take quadratic time.
inline Json& append_field(Json& object, std::string key, Json value) {
  auto& fields = object.get_ref<Json::object_t&>();
  fields.Container::emplace_back(std::move(key), std::move(value));
  return fields.back().second;
}

}  // namespace kvcal
