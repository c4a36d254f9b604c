#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/json.h"

namespace kvcal {

/// Columns of a table, or keys of JSON records, that make a record instead of those that are
/// recognized. Empty: not named.
struct RecordColumns {
  std::string text = {};
  std::string prompt = {}, response = {};  ///< what the user says, and the answer
  std::string messages = {};               ///< a conversation
  std::string delimiter = {};              ///< between the columns of CSV; empty: by the extension

  /// Whether no column is named.
  bool is_empty() const {
    return text.empty() && prompt.empty() && response.empty() && messages.empty();
  }
};

/// The longest record in bytes, unless a caller sets another limit. Reading and tokenizing one
/// takes about 20 times as much memory.
inline constexpr size_t kDefaultRecordBytes = size_t{8} << 20;

/// How a caller wants conversations rendered.
struct ChatOptions {
  std::string template_file = {};  ///< instead of the model's template; empty: that
  /// Variables of the template, such as enable_thinking, as an object; null: none. A record's own
  /// `chat_template_kwargs` come after them.
  Json variables = nullptr;
};

/// How many records that cannot be used a run passes over: so many, or this part of the data set.
struct SkipLimit {
  int64_t records = 0;
  double part = 0.0;

  int64_t of(int64_t num_records) const {
    return std::max(records, static_cast<int64_t>(part * static_cast<double>(num_records)));
  }
};

/// How a caller wants the records of a data set read.
struct RecordOptions {
  RecordColumns columns = {};  ///< of objects, where they are not recognized
  size_t max_bytes = kDefaultRecordBytes;
  ChatOptions chat = {};
  SkipLimit skip = {};
};

/// The columns by their names in files; options are called "--text-column".
inline constexpr std::array kRecordColumns{
    std::pair{std::string_view("text_column"), &RecordColumns::text},
    std::pair{std::string_view("prompt_column"), &RecordColumns::prompt},
    std::pair{std::string_view("response_column"), &RecordColumns::response},
    std::pair{std::string_view("messages_column"), &RecordColumns::messages},
    std::pair{std::string_view("delimiter"), &RecordColumns::delimiter},
};

/// A delimiter of CSV: one character of ASCII, no quote, or "tab". Throws Error.
std::string parse_delimiter(const std::string& text);

/// Those that are named, by these names, and the delimiter.
inline Json to_json(const RecordColumns& columns) {
  Json json = Json::object();
  for (const auto& [key, column] : kRecordColumns)
    if (!(columns.*column).empty()) json[std::string(key)] = columns.*column;
  return json;
}

/// All of the options that decides which samples a data set's records make: columns, the chat
/// template's SHA-256, its variables, and the records that may be passed over. Throws Error for a
/// template that cannot be read.
Json identity_of(const RecordOptions& records);

/// Those that are set: "chat_template", its file's name, and "chat_template_kwargs".
inline Json to_json(const ChatOptions& chat) {
  Json json = Json::object();
  if (const std::string& file = chat.template_file; !file.empty())
    json["chat_template"] = file.substr(file.rfind('/') + 1);
  if (!chat.variables.is_null()) json["chat_template_kwargs"] = chat.variables;
  return json;
}

}  // namespace kvcal
