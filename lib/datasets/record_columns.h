#pragma once

#include <array>
#include <cstddef>
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

  bool is_empty() const {
    return text.empty() && prompt.empty() && response.empty() && messages.empty();
  }
};

/// The longest record in bytes, unless a caller sets another limit. Reading and tokenizing one
/// takes about 20 times as much memory.
inline constexpr size_t kDefaultRecordBytes = size_t{8} << 20;

/// How a caller wants the records of a data set read.
struct RecordOptions {
  RecordColumns columns = {};  ///< of objects, where they are not recognized
  size_t max_bytes = kDefaultRecordBytes;
};

/// The columns by their names in files; options are called "--text-column".
inline constexpr std::array kRecordColumns{
    std::pair{std::string_view("text_column"), &RecordColumns::text},
    std::pair{std::string_view("prompt_column"), &RecordColumns::prompt},
    std::pair{std::string_view("response_column"), &RecordColumns::response},
    std::pair{std::string_view("messages_column"), &RecordColumns::messages},
};

/// Those that are named, by these names.
inline Json to_json(const RecordColumns& columns) {
  Json json = Json::object();
  for (const auto& [key, column] : kRecordColumns)
    if (!(columns.*column).empty()) json[std::string(key)] = columns.*column;
  return json;
}

}  // namespace kvcal
