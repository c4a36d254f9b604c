#pragma once

#include <string>
#include <string_view>

#include "jinja/value.h"

namespace kvcal::jinja {

/// repr of a float: the shortest digits that read back, "1e+16" from there on.
std::string float_text(double value);

/// str(value). Throws Error for values whose text is an address, such as generators and functions.
Text to_text(Run& run, const Value& value);
/// The same as a view, without a copy where value is a text already.
std::string_view text_view(Run& run, const Value& value);
/// repr(value)
Text to_repr(Run& run, const Value& value);
/// Appends str(value) to out.
void print(Run& run, const Value& value, Text& out);

/// The options of json.dumps.
struct JsonStyle {
  bool ensures_ascii = false;
  bool has_indent = false;
  std::string_view indent = {};  ///< of one level
  std::string_view item_separator = ", ", key_separator = ": ";
  bool sorts_keys = false;
};
/// json.dumps(value). Throws Error for values that JSON does not have.
Text to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace kvcal::jinja
