#include "report/json_fields.h"

#include <cmath>

namespace kvcal::report {

double number_or_nan(const Json& object, std::string_view key) {
  return optional_number(object, key).value_or(std::nan(""));
}

std::string text_or_empty(const Json& object, std::string_view key) {
  return optional_string(object, key).value_or("");
}

void each_value(const Json& object, std::string_view key,
                const std::function<void(const Json& entry)>& read) {
  const Json* list = find_field(object, key);
  if (!list) return;
  if (!list->is_array()) fail_kind(key, "a list", *list);
  for (size_t i = 0; i < list->size(); ++i)
    in_context(std::string(key) + "[" + std::to_string(i) + "]", [&] { read((*list)[i]); });
}

void each_object(const Json& object, std::string_view key,
                 const std::function<void(const Json& entry)>& read) {
  each_value(object, key, [&](const Json& entry) {
    if (!entry.is_object()) fail("found ", kind_of(entry), ", expected an object");
    read(entry);
  });
}

}  // namespace kvcal::report
