#pragma once

#include <optional>

#include "jinja/value.h"

namespace kvcal::jinja {

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
/// round(value, precision): halves to the even neighbour of the exact decimal value.
Value rounded(const Value& value, int64_t precision);
/// html.escape as markupsafe does it.
Text escaped_html(Run& run, std::string_view text);

/// owner.name: an attribute or method, else the item of that key, else undefined. Throws Error for
/// an undefined owner. Source: Jinja2 3.1, sandbox.py, SandboxedEnvironment.getattr.
Value attribute_of(Interpreter& interpreter, const Value& owner, std::string_view name);
/// owner[key]: an item, else for a text key the attribute, else undefined.
Value item_of(Interpreter& interpreter, const Value& owner, const Value& key);
/// The attribute that Python's getattr alone finds, made safe; missing where there is none.
Value own_attribute(Interpreter& interpreter, const Value& owner, std::string_view name);
/// owner[start:stop:step], none for a part left out. Throws Error for what cannot be cut.
Value slice_of(Run& run, const Value& owner, const Value& start, const Value& stop,
               const Value& step);

}  // namespace kvcal::jinja
