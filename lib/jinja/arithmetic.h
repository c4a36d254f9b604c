#pragma once

#include "jinja/syntax.h"
#include "jinja/value.h"

namespace kvcal::jinja {

/// a + b and its kin with Python's meanings. Throws Error for types that have no such operation,
/// division by zero and ints past 64 bits, which Python would let grow.
Value arithmetic(Run& run, Operator op, const Value& a, const Value& b);
/// -a, +a
Value unary(Operator op, const Value& a);
/// html.escape as markupsafe does it.
std::string escaped_html(std::string_view text);

/// round(value, precision): halves to the even neighbour of the exact decimal value.
Value rounded(const Value& value, int64_t precision);

}  // namespace kvcal::jinja
