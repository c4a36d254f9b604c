#include <algorithm>
#include <functional>
#include <utility>

#include "core/registry.h"
#include "core/text.h"
#include "datasets/dataset_reader.h"
#include "datasets/record_mapping.h"

namespace kvcal {
namespace {

using Kind = RecordMapping::Kind;

// The records that are recognized, in the order they are judged: first the usual keys, then shapes
// of published data sets and logs, by their names.
const std::vector<RecordMapping> kKnownRecords{
    {.kind = Kind::kInputIds, .field = "input_ids"},
    {.kind = Kind::kMessages, .field = "messages"},
    {.kind = Kind::kConversations, .field = "conversations"},
    {.kind = Kind::kText, .field = "text"},
    {.kind = Kind::kPair, .field = "instruction", .input = "input", .response = "output"},
    {.kind = Kind::kPair, .field = "prompt", .response = "response"},
    {.kind = Kind::kPair, .field = "prompt", .response = "completion"},
    {.kind = Kind::kText, .field = "content"},
    {.kind = Kind::kMessages, .field = "body.messages"},  // requests of OpenAI's batches
    {.kind = Kind::kMessages, .field = "body.input"},     // the same, of responses
    {.kind = Kind::kMessages, .field = "inputs.messages", .response = "outputs"},  // LangSmith
    {.kind = Kind::kMessages, .field = "input", .response = "output"},   // logs of responses
    {.kind = Kind::kMessages, .field = "prompt", .response = "chosen"},  // DPO pairs
    {.kind = Kind::kMessages, .field = "chosen"},                        // DPO pairs
    {.kind = Kind::kPair, .field = "prompt", .response = "chosen"},      // DPO pairs
    {.kind = Kind::kTranscript, .field = "chosen"},                      // hh-rlhf
    {.kind = Kind::kPair, .field = "instruction", .input = "context", .response = "response"},
    {.kind = Kind::kPair, .field = "question", .response = "response", .system = "system_prompt"},
    {.kind = Kind::kPair, .field = "question", .response = "answer"},
    {.kind = Kind::kPair, .field = "query", .response = "response"},
    {.kind = Kind::kPair, .field = "problem", .response = "solution"},
    {.kind = Kind::kText, .field = "code"},
};
/// Of them, the number of those by usual keys, which say by their name what they hold.
constexpr size_t kNumUsual = 8;
constexpr std::string_view kKnownKeys =
    "'input_ids', 'messages', 'conversations', 'text', 'instruction' with 'output', 'prompt' with "
    "'response' or 'completion', 'content'";

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

/// The value, or that which a text holds as JSON, as CSV and many tables have it; an empty text is
/// an empty array.
Json array_of(const Json& value, std::string_view key, std::string_view wanted) {
  Json array = value;
  if (value.is_string()) {
    const std::string_view text = ascii_trimmed(value.get_ref<const std::string&>());
    if (text.empty()) return Json::array();
    if (!text.starts_with('[')) fail_kind(key, wanted, value);
    try {
      array = parse_json(text, {.max_bytes = text.size()});
    } catch (const Error& error) {
      // What Python's str() and pandas make of such a value is no JSON.
      fail("key '", key, "' is text, which is read as JSON: ", error.message(),
           text.starts_with("[{'") ? "; write the column with json.dumps" : "");
    }
  }
  if (!array.is_array()) fail_kind(key, wanted, array);
  return array;
}

/// Whether the turns of a conversation are {"from", "value"}.
bool is_sharegpt(const Json& turns) {
  return !turns.empty() && turns[0].is_object() && turns[0].contains("from") &&
         !turns[0].contains("role");
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
  const Json items = array_of(value, key, "an array of token ids");
  std::vector<TokenId> ids;
  ids.reserve(items.size());
  for (const Json& item : items) {
    if (!item.is_number_integer()) fail_kind(element(key, ids.size()), "a token id", item);
    const bool fits = item.is_number_unsigned() && item.get<uint64_t>() <= uint64_t{INT32_MAX};
    if (!fits) fail_kind(element(key, ids.size()), "a token id from 0 to 2147483647", item);
    ids.push_back(static_cast<TokenId>(item.get<uint64_t>()));
  }
  return ids;
}

void check_mask(const Json& value, std::string_view key, size_t tokens) {
  const Json mask = array_of(value, key, "an array of 1s");
  if (mask.size() != tokens)
    fail("key '", key, "' has ", counted(mask.size(), "value"), ", expected one for each of ",
         tokens, " token ids");
  check_hides_nothing(mask, std::string(key));
}

void check_hides_nothing(const Json& mask, const std::string& name) {
  if (mask.is_array()) {
    for (size_t i = 0; i < mask.size(); ++i) check_hides_nothing(mask[i], element(name, i));
  } else if (mask != 1 && mask != true) {
    fail(name, " is ", mask.dump(),
         ", expected 1: masked tokens are not supported; leave padding out of the record");
  }
}

Json to_messages(const Json& value, std::string_view key) {
  Json messages = array_of(value, key, "an array of messages");
  if (is_sharegpt(messages)) return turns_to_messages(messages, key);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object())
      fail_kind(element(key, i), "an object with 'role' and 'content'", message);
    in_context(element(key, i), [&] {
      const Json* role = find_field(message, "role");
      if (!role) fail_absent(message, "role");
      if (!role->is_string()) fail_kind("role", "a string", *role);
      check_content(message);
    });
  }
  return messages;
}

Json turns_to_messages(const Json& value, std::string_view key) {
  const Json turns = array_of(value, key, "an array of turns");
  Json messages = Json::array();
  for (size_t i = 0; i < turns.size(); ++i) {
    const Json& turn = turns[i];
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

namespace {

std::vector<std::string> keys_of(std::span<const RecordMapping> records) {
  std::vector<std::string> keys;
  for (const RecordMapping& known : records)
    for (std::string& field : fields_of(known))
      if (std::ranges::find(keys, field) == keys.end()) keys.push_back(std::move(field));
  return keys;
}

}  // namespace

std::span<const std::string> record_keys() {
  static const std::vector<std::string> kKeys = keys_of(kKnownRecords);
  return kKeys;
}

std::span<const std::string> usual_record_keys() {
  static const std::vector<std::string> kKeys = keys_of(std::span(kKnownRecords).first(kNumUsual));
  return kKeys;
}

namespace {

bool holds_empty_text(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

bool holds_messages(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& message) {
           return message.is_object() && message.contains("role");
         });
}

/// Whether the object is a record of this kind. An empty cell of a table of text holds no array.
bool matches(const RecordMapping& known, const Json& object) {
  const bool is_usual = &known < kKnownRecords.data() + kNumUsual;
  const Json* value = is_usual ? find_field(object, known.field) : find_value(object, known.field);
  if (!value) return false;
  const bool needs_response = known.kind == Kind::kPair;
  if (needs_response && !object.contains(known.response)) return false;
  if (is_usual) {
    const bool is_array = known.kind != Kind::kText && known.kind != Kind::kPair;
    return !is_array || !holds_empty_text(*value);
  }
  if (known.kind == Kind::kMessages) return holds_messages(*value);
  const Json* response = needs_response ? find_field(object, known.response) : value;
  const bool is_transcript = value->is_string() && value->get_ref<const std::string&>().find(
                                                       "\n\nAssistant:") != std::string::npos;
  return value->is_string() && response && response->is_string() &&
         (known.kind != Kind::kTranscript || is_transcript);
}

constexpr std::string_view kNamedColumns =
    "--text-column, or --prompt-column and --response-column, or --messages-column";
constexpr size_t kProseWords = 2;

/// Whether a value is a text that somebody wrote: two words or more, no name, path or number.
bool is_prose(const Json& value) {
  if (!value.is_string()) return false;
  const std::string_view text = ascii_trimmed(value.get_ref<const std::string&>());
  const bool has_letter = std::ranges::any_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (static_cast<uint8_t>(c) & 0x80);
  });
  return has_letter && static_cast<size_t>(std::ranges::count_if(
                           text, [](char c) { return c == ' ' || c == '\n'; })) >= kProseWords - 1;
}

/// The path of the first messages in the object or in objects in it; empty: there are none.
std::string path_of_messages(const Json& object, int depth = 3) {
  for (const auto& [key, value] : object.items()) {
    const bool is_text =
        value.is_string() && value.get_ref<const std::string&>().starts_with("[{\"");
    if (holds_messages(value) || is_text) return key;
    if (!value.is_object() || depth == 1) continue;
    if (const std::string path = path_of_messages(value, depth - 1); !path.empty())
      return key + "." + path;
  }
  return {};
}

/// The options that would read the object: of its messages, else of its two longest texts as a
/// pair, or of the longest. Names none that would read no text.
std::string advice_on(const Json& object) {
  if (const std::string path = path_of_messages(object); !path.empty())
    return "--messages-column '" + path + "'";
  struct Text {
    size_t size = 0, place = 0;
    std::string key;
  };
  std::vector<Text> texts;
  for (const auto& [key, value] : object.items())
    if (is_prose(value))
      texts.push_back({value.get_ref<const std::string&>().size(), texts.size(), key});
  std::ranges::stable_sort(texts, std::greater{}, &Text::size);
  if (texts.empty()) return std::string(kNamedColumns);
  const std::string text = "--text-column '" + texts[0].key + "'";
  if (texts.size() == 1) return text;
  texts.resize(2);
  std::ranges::sort(texts, {}, &Text::place);
  return "--prompt-column '" + texts[0].key + "' --response-column '" + texts[1].key + "', or " +
         text;
}

[[noreturn]] void fail_unknown(const Json& object) {
  if (object.empty()) fail("the record is empty, expected one of the keys ", kKnownKeys);
  if (find_field(object, "role") && find_field(object, "content"))
    fail(
        "is one message, expected a conversation: an object whose key 'messages' holds the "
        "messages of one in an array");
  for (const RecordMapping& known : kKnownRecords)
    if (object.contains(known.field) && object.at(known.field).is_null() &&
        (known.response.empty() || object.contains(known.response)))
      fail("key '", known.field, "' is null, and none of the others of the keys ", kKnownKeys,
           " holds anything");
  const std::vector<std::string> keys{"input_ids", "messages", "conversations", "text"};
  std::string hint;
  for (const auto& item : object.items())
    if (hint.empty()) hint = did_you_mean(item.key(), keys);
  fail("none of the keys ", kKnownKeys, " is there; found are ", list_keys(object), hint,
       "; say which to read with ", advice_on(object));
}

}  // namespace

Record to_record(const Json& object, std::string place) {
  if (!object.is_object())
    fail("a record is ", kind_of(object), ", expected an object with one of the keys ", kKnownKeys);
  for (const RecordMapping& known : kKnownRecords)
    if (matches(known, object)) {
      if (known.field == "content" && find_field(object, "role")) fail_unknown(object);
      return map_record(known, object, std::move(place));
    }
  const bool has_empty = std::ranges::any_of(kKnownRecords, [&](const RecordMapping& known) {
    const Json* value = find_field(object, known.field);
    return value && known.response.empty() && holds_empty_text(*value);
  });
  if (has_empty) return {std::string(), std::move(place)};
  fail_unknown(object);
}

}  // namespace kvcal
