#include "datasets/record_mapping.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "datasets/dataset_reader.h"
#include "datasets/record_columns.h"

namespace kvcal {

Json identity_of(const RecordOptions& records) {
  Json json = to_json(records.columns);
  json.update(to_json(records.chat));
  if (const std::string& file = records.chat.template_file; !file.empty())
    json["chat_template"] = sha256_hex(read_text(file, kSmallFileLimits.max_bytes));
  if (const SkipLimit& skip = records.skip; skip.records > 0 || skip.part > 0)
    json["skip_bad_records"] = {skip.records, skip.part};
  return json;
}

namespace {

constexpr size_t kMaxFieldBytes = 200;
/// Beside token ids.
constexpr std::string_view kMask = "attention_mask";
using Kind = RecordMapping::Kind;

/// Keys beside a conversation that its template gets.
constexpr const char *kTools = "tools", *kDocuments = "documents",
                     *kTemplateArguments = "chat_template_kwargs";

const Json& field_of(const Json& object, const std::string& field) {
  if (const Json* value = find_value(object, field)) return *value;
  fail_absent(object, field);
}

std::string text_of(const Json& object, const std::string& field) {
  const Json& value = field_of(object, field);
  if (!value.is_string()) fail_kind(field, "a string", value);
  return value.get<std::string>();
}

/// A question and its answer as a conversation; a side that is empty is left out.
Json pair_to_messages(const RecordMapping& mapping, const Json& object) {
  Json messages = Json::array();
  const auto add = [&](std::string_view role, std::string content) {
    if (!content.empty()) messages.push_back({{"role", role}, {"content", std::move(content)}});
  };
  std::string prompt = text_of(object, mapping.field);
  const auto optional = [&](const std::string& field) -> std::string {
    const Json* value = field.empty() ? nullptr : find_value(object, field);
    if (!value) return {};
    if (!value->is_string()) fail_kind(field, "a string", *value);
    return value->get<std::string>();
  };
  if (const std::string input = optional(mapping.input); !input.empty())
    prompt += (prompt.empty() ? "" : "\n\n") + input;
  add("system", optional(mapping.system));
  add("user", std::move(prompt));
  if (!mapping.response.empty()) add("assistant", text_of(object, mapping.response));
  return messages;
}

/// The value, or that which a text holds as JSON.
Json parsed(const Json& value, std::string_view key) {
  if (!value.is_string()) return value;
  const std::string& text = value.get_ref<const std::string&>();
  return in_context("key '" + std::string(key) + "' is text, which is read as JSON",
                    [&] { return parse_json(text, {.max_bytes = text.size()}); });
}

/// The variables that the object beside the messages gives a template; null: none.
Json template_variables(const Json& object, const std::string& field) {
  const size_t dot = field.rfind('.');
  const Json* holder = &object;
  if (!object.contains(field) && dot != field.npos)
    holder = find_value(object, field.substr(0, dot));
  Json variables = nullptr;
  for (const char* key : {kTools, kDocuments})
    if (const Json* value = find_field(*holder, key)) {
      const Json list = parsed(*value, key);
      if (!list.is_array()) fail_kind(key, "an array", list);
      if (!list.empty()) variables[key] = list;
    }
  if (const Json* more = find_field(*holder, kTemplateArguments)) {
    const Json object_of = parsed(*more, kTemplateArguments);
    if (!object_of.is_object()) fail_kind(kTemplateArguments, "an object", object_of);
    for (const auto& [key, value] : object_of.items()) variables[key] = value;
  }
  return variables;
}

/// An answer, as a text, a message or output items of OpenAI's responses, behind the messages.
void add_answer(const Json& answer, Json& messages) {
  if (answer.is_string()) {
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  } else if (answer.is_array()) {
    for (const Json& item : answer) add_answer(item, messages);
  } else if (answer.is_object() && find_field(answer, "content")) {
    Json message = {{"role", "assistant"}};
    message.update(answer);
    messages.push_back(std::move(message));
  }
}

Record messages_record(const RecordMapping& mapping, const Json& object, std::string place) {
  Json messages = to_messages(field_of(object, mapping.field), mapping.field);
  if (!mapping.response.empty())
    if (const Json* answer = find_value(object, mapping.response)) add_answer(*answer, messages);
  return {std::move(messages), std::move(place), template_variables(object, mapping.field)};
}

/// Turns of "\n\nHuman: " and "\n\nAssistant: ". Source: the hh-rlhf data set.
Json transcript_to_messages(const std::string& text) {
  constexpr std::string_view kHuman = "\n\nHuman:", kAssistant = "\n\nAssistant:";
  Json messages = Json::array();
  for (size_t begin = std::min(text.find(kHuman), text.find(kAssistant)); begin != text.npos;) {
    const bool is_human = std::string_view(text).substr(begin).starts_with(kHuman);
    const size_t from = begin + (is_human ? kHuman : kAssistant).size();
    const size_t end = std::min(text.find(kHuman, from), text.find(kAssistant, from));
    const std::string_view turn =
        ascii_trimmed(std::string_view(text).substr(from, end == text.npos ? end : end - from));
    messages.push_back({{"role", is_human ? "user" : "assistant"}, {"content", turn}});
    begin = end;
  }
  if (messages.empty())
    fail("the text has no turn that begins with 'Human:' or 'Assistant:' behind an empty line");
  return messages;
}

std::string filled(const RecordMapping& mapping, const Json& object) {
  std::string all;
  bool is_first = true;
  for (const FieldTemplate& part : mapping.parts) {
    const auto text = part.fill(object);
    if (!text) continue;
    if (!std::exchange(is_first, false)) all += mapping.separator;
    all += *text;
  }
  return all;
}

}  // namespace

FieldTemplate::FieldTemplate(std::string_view source) {
  std::string literal;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c != '{' && c != '}') {
      literal += c;
      continue;
    }
    if (source.substr(i + 1).starts_with(c)) {
      literal += c;
      ++i;
      continue;
    }
    const size_t end = source.find_first_of("{}", i + 1);
    if (c == '}' || end == std::string_view::npos || source[end] == '{')
      fail("template '", source, "' has a '", c, "' without its partner; write '", c, c,
           "' for the character itself");
    if (end == i + 1 || end - i > kMaxFieldBytes)
      fail("template '", source, "' has a {field} without a name");
    pieces_.push_back({std::exchange(literal, ""), std::string(source.substr(i + 1, end - i - 1))});
    i = end;
  }
  if (pieces_.empty()) fail("template '", source, "' names no {field} of the record");
  pieces_.push_back({literal, ""});
}

std::optional<std::string> FieldTemplate::fill(const Json& object) const {
  std::string text;
  bool has_content = false;
  for (const Piece& piece : pieces_) {
    text += piece.literal;
    if (piece.field.empty()) continue;
    if (!object.contains(piece.field)) fail_absent(object, piece.field);
    const auto value = optional_string(object, piece.field);
    has_content = has_content || (value && !value->empty());
    text += value.value_or("");
  }
  if (!has_content) return std::nullopt;
  return text;
}

std::vector<std::string> FieldTemplate::fields() const {
  std::vector<std::string> names;
  for (const Piece& piece : pieces_)
    if (!piece.field.empty()) names.push_back(piece.field);
  return names;
}

const Json* find_value(const Json& object, std::string_view path) {
  if (!object.is_object()) return nullptr;
  if (const Json* value = find_field(object, path)) return value;
  const size_t dot = path.find('.');
  if (dot == path.npos) return nullptr;
  const Json* holder = find_field(object, path.substr(0, dot));
  return holder ? find_value(*holder, path.substr(dot + 1)) : nullptr;
}

std::vector<std::string> fields_of(const RecordMapping& mapping) {
  std::vector<std::string> names;
  for (const std::string* field :
       {&mapping.field, &mapping.input, &mapping.response, &mapping.system}) {
    if (field->empty()) continue;
    names.push_back(*field);
    if (const size_t dot = field->find('.'); dot != field->npos)
      names.push_back(field->substr(0, dot));
  }
  if (mapping.kind == Kind::kMessages)
    for (const char* key : {kTools, kDocuments, kTemplateArguments}) names.emplace_back(key);
  if (mapping.kind == Kind::kInputIds) names.emplace_back(kMask);
  for (const FieldTemplate& part : mapping.parts)
    for (std::string& name : part.fields()) names.push_back(std::move(name));
  return names;
}

RecordMapping mapping_of(const RecordColumns& columns) {
  const int kinds = (columns.text.empty() ? 0 : 1) + (columns.messages.empty() ? 0 : 1) +
                    (columns.prompt.empty() && columns.response.empty() ? 0 : 1);
  if (kinds != 1)
    fail_usage("columns of ", kinds,
               " kinds are named, expected one of --text-column, --prompt-column (with "
               "--response-column) and --messages-column");
  if (columns.prompt.empty() && !columns.response.empty())
    fail_usage(
        "--response-column is given without --prompt-column; one alone goes with --text-column");
  if (!columns.text.empty()) return {.kind = Kind::kText, .field = columns.text};
  if (!columns.messages.empty()) return {.kind = Kind::kMessages, .field = columns.messages};
  return {.kind = Kind::kPair, .field = columns.prompt, .response = columns.response};
}

Record map_record(const RecordMapping& mapping, const Json& object, std::string place) {
  if (!object.is_object()) fail("a record is ", kind_of(object), ", expected an object");
  const std::string& field = mapping.field;
  switch (mapping.kind) {
    case Kind::kInputIds: {
      std::vector<TokenId> ids = to_ids(field_of(object, field), field);
      if (const Json* mask = find_field(object, kMask)) check_mask(*mask, kMask, ids.size());
      return {std::move(ids), std::move(place)};
    }
    case Kind::kMessages:
      return messages_record(mapping, object, std::move(place));
    case Kind::kTranscript:
      return {transcript_to_messages(text_of(object, field)), std::move(place)};
    case Kind::kConversations:
      return {turns_to_messages(field_of(object, field), field), std::move(place)};
    case Kind::kText:
      return {text_of(object, field), std::move(place)};
    case Kind::kTemplates:
      return {filled(mapping, object), std::move(place)};
    case Kind::kPair:
      return {pair_to_messages(mapping, object), std::move(place)};
  }
  KVCAL_CHECK(false);
}

}  // namespace kvcal
