#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace kvcal {

/// Object keys keep the order of the file, so that a rewritten file resembles its source.
using Json = nlohmann::ordered_json;

/// Limits for untrusted files.
struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  int max_depth = 128;
  /// Values of any kind, without keys: limits the memory that a dense file can take.
  size_t max_values = 8'000'000;
  /// Accepts Infinity, -Infinity and NaN as numbers, as Python does.
  bool has_python_constants = false;
};

/// Parses one JSON value. Throws Error with line and column for invalid JSON (RFC 8259, UTF-8), an
/// exceeded limit, or a repeated key in an object.
Json parse_json(std::string_view text, const JsonLimits& limits = {});

/// Kind of a value for messages: "a string", "an object".
std::string_view kind_of(const Json& value);

/// Throws the Error for a missing or a mistyped field.
[[noreturn]] void fail_missing(std::string_view key, std::string_view wanted);
[[noreturn]] void fail_kind(std::string_view key, std::string_view wanted, const Json& found);

/// object[key] where present and not null. Throws Error where object is none.
const Json* find_field(const Json& object, std::string_view key);
/// value[key], and of that the members that further keys name; nullptr where one is no object, or
/// a key is absent or null.
template <class... Keys>
const Json* member(const Json& value, std::string_view key, const Keys&... further) {
  const Json* found = value.is_object() ? find_field(value, key) : nullptr;
  if constexpr (sizeof...(further) > 0)
    return found ? member(*found, further...) : nullptr;
  else
    return found;
}

/// Typed access to a field. optional_* give nullopt for an absent or null field; required_* throw
/// Error. All throw Error when the value has another type, naming key, wanted and found. An integer
/// field takes no fraction; a number field takes any number that is finite.
std::optional<int64_t> optional_int(const Json& object, std::string_view key);
std::optional<double> optional_number(const Json& object, std::string_view key);
std::optional<bool> optional_bool(const Json& object, std::string_view key);
std::optional<std::string> optional_string(const Json& object, std::string_view key);
int64_t required_int(const Json& object, std::string_view key);
double required_number(const Json& object, std::string_view key);
std::string required_string(const Json& object, std::string_view key);
/// wanted: what the list holds, for the message.
const Json& required_list(const Json& object, std::string_view key,
                          std::string_view wanted = "a list");

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

/// value as text, indented, with keys in their order; ends with a newline.
std::string dump_json(const Json& value, int indent = 2);

/// value as Python's json.dumps(indent=2) writes it: ASCII with \u escapes, Infinity, -Infinity and
/// NaN, no newline at the end.
std::string dump_as_python(const Json& value);

/// value with the keys of every object sorted, recursively.
Json sorted_keys(const Json& value);

/// Limits of config.json and the other small files beside a model's weights.
inline constexpr JsonLimits kSmallFileLimits{.max_bytes = size_t{16} << 20, .max_values = 500'000};

/// Limits of a tokenizer's files. The largest published one has 35 MB and two million values.
inline constexpr JsonLimits kTokenizerLimits{.max_bytes = size_t{128} << 20,
                                             .max_values = 4'000'000};

/// Longest string, number or run of white space, in bytes, in files other than data sets. The
/// parser holds two copies of one at a time.
inline constexpr size_t kMaxTokenBytes = size_t{16} << 20;

/// Checks a JSON text before any value is built, since a value takes many times its two bytes in
/// the file. Throws Error for more than max_values values, without keys, and for a token longer
/// than max_token_bytes. Does not check whether the JSON is valid.
void check_json_sizes(std::string_view text, size_t max_values, size_t max_token_bytes);

/// parse_json of a file beside a model, after check_json_sizes with kMaxTokenBytes.
Json parse_model_json(std::string_view text, const JsonLimits& limits = kSmallFileLimits);

/// The object in a file beside a model. Throws Error naming the file.
Json read_json_object(const std::filesystem::path& path,
                      const JsonLimits& limits = kSmallFileLimits);

/// The object of a config.json, which may hold Python's NaN and Infinity. Throws Error naming the
/// file.
Json read_model_config(const std::filesystem::path& path);

}  // namespace kvcal
