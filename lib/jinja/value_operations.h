#pragma once

#include <string>
#include <string_view>

#include "jinja/value.h"

namespace kvcal::jinja {

class Interpreter;

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

/// "+": how templates write the operator.
std::string_view symbol_of(Operator op);

/// a + b and its kin with Python's meanings. Throws Error for types that have no such operation,
/// division by zero and ints past 64 bits, which Python would let grow.
Value arithmetic(Run& run, Operator op, const Value& a, const Value& b);
/// a == b and its kin. Throws Error where Python has no order, as between a text and a number.
bool compare(Run& run, Operator op, const Value& a, const Value& b);
/// -a where is_negated, else +a
Value signed_number(bool is_negated, const Value& a);
/// html.escape as markupsafe does it.
Text escaped_html(Run& run, std::string_view text);

/// owner.name: an attribute or method, else the item of that key, else undefined. Throws Error for
/// an undefined owner. Source: Jinja2 3.1, sandbox.py, SandboxedEnvironment.getattr.
Value attribute_of(Run& run, const Value& owner, std::string_view name);
/// owner[key]: an item, else for a text key the attribute, else undefined.
Value item_of(Run& run, const Value& owner, const Value& key);
/// The attribute that Python's getattr alone finds, made safe; missing where there is none.
Value own_attribute(Run& run, const Value& owner, std::string_view name);
/// owner[start:stop:step], none for a part left out. Throws Error for what cannot be cut.
Value slice_of(Run& run, const Value& owner, const Value& start, const Value& stop,
               const Value& step);

/// repr of a float: the shortest digits that read back, "1e+16" from there on.
std::string float_text(double value);
/// Appends str(value) to out. Throws Error for values whose text is an address, such as generators
/// and functions.
void print(Run& run, const Value& value, Text& out);
/// str(value)
Text to_text(Run& run, const Value& value);
/// The same as a view, without a copy where value is a text already.
std::string_view text_view(Run& run, const Value& value);
/// repr(value)
Text to_repr(Run& run, const Value& value);

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

/// format % values, as Python's str does it: %s, %r, %d, %i, %u, %x, %o, %e, %f, %g with flags,
/// width and precision.
Value format_percent(Run& run, std::string_view format, const Value& values);
/// format.format(*args, **kwargs): fields {}, {0}, {name}, conversions !r and !s, and format
/// specifications of fill, alignment, sign, zeros, width, commas, precision and type.
Value format_braces(Run& run, std::string_view format, const CallArguments& arguments);

}  // namespace kvcal::jinja
