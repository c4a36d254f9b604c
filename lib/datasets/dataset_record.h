#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "datasets/dataset.h"

namespace kvcal {

/// The record an object of a file holds. Throws Error naming the key, what was found and what was
/// expected.
Record to_record(const Json& object, std::string place);

/// The parts of it, for readers that name the fields themselves; key is for messages.
std::vector<TokenId> to_ids(const Json& value, std::string_view key);
Json to_messages(const Json& value, std::string_view key);
/// ShareGPT turns, {"from", "value"} or {"role", "content"}, as messages.
Json turns_to_messages(const Json& value, std::string_view key);

/// "'id', 'title'": an object's keys, the first 20 of them, for messages.
std::string list_keys(const Json& object);
/// Throws Error: key is not in object, which has others; with the nearest of them.
[[noreturn]] void fail_absent(const Json& object, std::string_view key);

}  // namespace kvcal
