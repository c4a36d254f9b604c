
#include <array>
#include <limits>
#include <utility>

#include "core/registry.h"
#include "datasets/record_source.h"

namespace kvcal {
namespace {

// In the order they are judged.
const std::vector<std::string> kRecordKeys{"input_ids", "messages", "conversations", "text"};

// Who speaks in ShareGPT files, as the role chat templates know. Source: the names in use in
// published ShareGPT sets; "bing", "bard" and "chatgpt" name the assistant that was recorded.
const Registry<std::string> kSpeakers{"speaker",
                                      {{"human", "user"},
                                       {"user", "user"},
                                       {"gpt", "assistant"},
                                       {"assistant", "assistant"},
                                       {"chatgpt", "assistant"},
                                       {"bing", "assistant"},
                                       {"bard", "assistant"},
                                       {"model", "assistant"},
                                       {"function_call", "assistant"},
                                       {"system", "system"},
                                       {"tool", "tool"},
                                       {"function", "tool"},
                                       {"observation", "tool"}}};

std::string element(std::string_view key, size_t index) {
  return std::string(key) + "[" + std::to_string(index) + "]";
}

void check_array(const Json& value, std::string_view key, std::string_view wanted) {
  if (!value.is_array()) fail_kind(key, wanted, value);
}

void check_content(const Json& message) {
  const Json* content = find_field(message, "content");
  if (!content) {
    // An assistant that only calls tools says nothing.
    if (find_field(message, "tool_calls")) return;
    fail_absent(message, "content");
  }
  if (!content->is_string() && !content->is_array())
    fail_kind("content", "a string or an array of parts", *content);
}

}  // namespace

std::string list_keys(const Json& object) {
  constexpr size_t kMost = 20, kLongest = 40;
  std::string all;
  size_t count = 0;
  for (const auto& item : object.items()) {
    if (++count > kMost) return all + ", …";
    const std::string& key = item.key();
    all += (all.empty() ? "'" : ", '");
    all += key.size() > kLongest ? key.substr(0, kLongest - 3) + "..." : key;
    all += "'";
  }
  return all;
}

void fail_absent(const Json& object, std::string_view key) {
  if (object.empty()) fail("key '", key, "' is missing, the object is empty");
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  if (object.contains(key)) fail("key '", key, "' is null");
  fail("key '", key, "' is missing", did_you_mean(key, names), "; found are ", list_keys(object));
}

std::vector<TokenId> to_ids(const Json& value, std::string_view key) {
  check_array(value, key, "an array of token ids");
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer()) fail_kind(element(key, ids.size()), "a token id", item);
    const bool fits = item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT32_MAX};
    if (!fits) fail_kind(element(key, ids.size()), "a token id from 0 to 2147483647", item);
    ids.push_back(static_cast<TokenId>(item.get<uint64_t>()));
  }
  return ids;
}

Json to_messages(const Json& value, std::string_view key) {
  check_array(value, key, "an array of messages");
  for (size_t i = 0; i < value.size(); ++i) {
    const Json& message = value[i];
    if (!message.is_object())
      fail_kind(element(key, i), "an object with 'role' and 'content'", message);
    in_context(element(key, i), [&] {
      const Json* role = find_field(message, "role");
      if (!role) fail_absent(message, "role");
      if (!role->is_string()) fail_kind("role", "a string", *role);
      check_content(message);
    });
  }
  return value;
}

Json turns_to_messages(const Json& value, std::string_view key) {
  check_array(value, key, "an array of turns");
  Json messages = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const Json& turn = value[i];
    if (!turn.is_object()) fail_kind(element(key, i), "an object with 'from' and 'value'", turn);
    in_context(element(key, i), [&] {
      const bool is_sharegpt = turn.contains("from") || !turn.contains("role");
      const std::string_view speaker_key = is_sharegpt ? "from" : "role";
      const std::string_view text_key = is_sharegpt ? "value" : "content";
      if (!find_field(turn, speaker_key)) fail_absent(turn, speaker_key);
      if (!find_field(turn, text_key)) fail_absent(turn, text_key);
      const std::string& role = kSpeakers.at(required_string(turn, speaker_key));
      messages.push_back({{"role", role}, {"content", required_string(turn, text_key)}});
    });
  }
  return messages;
}

std::span<const std::string> record_keys() {
  return kRecordKeys;
}

Record to_record(const Json& object, std::string place) {
  if (!object.is_object())
    fail("a record is ", kind_of(object), ", expected an object with one of the keys 'input_ids', ",
         "'messages', 'conversations', 'text'");
  if (const Json* ids = find_field(object, "input_ids"))
    return {to_ids(*ids, "input_ids"), std::move(place)};
  if (const Json* messages = find_field(object, "messages"))
    return {to_messages(*messages, "messages"), std::move(place)};
  if (const Json* turns = find_field(object, "conversations"))
    return {turns_to_messages(*turns, "conversations"), std::move(place)};
  if (const Json* text = find_field(object, "text")) {
    if (!text->is_string()) fail_kind("text", "a string", *text);
    return {text->get<std::string>(), std::move(place)};
  }
  if (object.empty())
    fail(
        "the record is empty, expected one of the keys 'input_ids', 'messages', 'conversations', "
        "'text'");
  for (const std::string& key : kRecordKeys)
    if (object.contains(key))
      fail("key '", key, "' is null, and so are the others of the keys 'input_ids', 'messages', ",
           "'conversations', 'text' that are there");
  std::string hint;
  for (const auto& item : object.items())
    if (hint.empty()) hint = did_you_mean(item.key(), kRecordKeys);
  fail("none of the keys 'input_ids', 'messages', 'conversations', 'text' is there; found are ",
       list_keys(object), hint);
}

}  // namespace kvcal
