#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace kvcal {

/// Object keys keep the order of the file, so what we rewrite looks like what we read.
using Json = nlohmann::ordered_json;

/// Bounds for files of strangers.
struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  int max_depth = 128;
  /// Values of any kind, keys not counted: bounds the memory that a dense file can ask for.
  size_t max_values = 8'000'000;
  /// Infinity, -Infinity and NaN are numbers, as Python writes and reads them.
  bool has_python_constants = false;
};

/// Parses one JSON value. Throws Error with line and column for anything that is not valid JSON
/// (RFC 8259, UTF-8), is over one of the limits, or repeats a key in one object.
Json parse_json(std::string_view text, const JsonLimits& limits = {});

/// "a string", "an object": what a value is, for messages.
std::string_view kind_of(const Json& value);

/// The two halves of a message about a mistyped or missing field.
[[noreturn]] void fail_missing(std::string_view key, std::string_view wanted);
[[noreturn]] void fail_kind(std::string_view key, std::string_view wanted, const Json& found);

/// object[key] where present and not null.
const Json* find_field(const Json& object, std::string_view key);

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

/// value as text with the given indentation and keys in the order they have; ends with a newline.
std::string dump_json(const Json& value, int indent = 2);

/// value as Python's json.dumps(indent=2) writes it: ASCII with \u escapes, Infinity, -Infinity and
/// NaN, no newline at the end.
std::string dump_as_python(const Json& value);

/// value with every object's keys sorted, all the way down.
Json sorted_keys(const Json& value);

}  // namespace kvcal
