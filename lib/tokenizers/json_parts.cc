#include "tokenizers/json_parts.h"

#include <limits>

#include "core/error.h"
#include "unicode/unicode.h"

namespace kvcal::tokenizers {

bool required_bool(const Json& object, std::string_view key) {
  const auto value = optional_bool(object, key);
  if (!value) fail_missing(key, "true or false");
  return *value;
}

const Json& required_array(const Json& object, std::string_view key) {
  const Json* field = find_field(object, key);
  if (!field) fail_missing(key, "an array");
  if (!field->is_array()) fail_kind(key, "an array", *field);
  return *field;
}

char32_t required_character(const Json& object, std::string_view key) {
  const std::string text = required_string(object, key);
  if (text.empty() || unicode::decode(text, 0).size != text.size())
    fail("key '", key, "' is '", text, "', expected one character");
  return unicode::decode(text, 0).code_point;
}

TokenId token_id(const Json& value, std::string_view what) {
  const bool is_id =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
  if (!is_id || value.get<uint64_t>() > uint64_t{std::numeric_limits<TokenId>::max()})
    fail("id of ", what, " is ",
         value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 40),
         ", expected an integer from 0 to ", std::numeric_limits<TokenId>::max());
  return static_cast<TokenId>(value.get<uint64_t>());
}

void for_each_part(const Json& json, const std::string& path, std::string_view list_key,
                   const std::function<void(const Json& part, const std::string& type)>& visit) {
  const std::string type = in_context(path, [&] { return required_string(json, "type"); });
  if (type != "Sequence") return in_context(path, [&] { visit(json, type); });
  const Json& parts =
      in_context(path, [&]() -> const Json& { return required_array(json, list_key); });
  for (size_t i = 0; i < parts.size(); ++i)
    for_each_part(parts[i], path + "." + std::string(list_key) + "[" + std::to_string(i) + "]",
                  list_key, visit);
}

}  // namespace kvcal::tokenizers
