#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "tokenizers/tokenizer.h"

namespace kvcal::tokenizers {

bool required_bool(const Json& object, std::string_view key);
const Json& required_array(const Json& object, std::string_view key);
/// A string of exactly one code point.
char32_t required_character(const Json& object, std::string_view key);

/// value as a token id: an integer from 0 to 2^31 - 1.
TokenId token_id(const Json& value, std::string_view what);

/// Visits the component that json describes, or, when its type is "Sequence", those in its list
/// `list_key`, nested ones too, in order. Errors are told where in the file they arose:
/// "pre_tokenizer.pretokenizers[1]: ...".
void for_each_part(const Json& json, const std::string& path, std::string_view list_key,
                   const std::function<void(const Json& part, const std::string& type)>& visit);

}  // namespace kvcal::tokenizers
