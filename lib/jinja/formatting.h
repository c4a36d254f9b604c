#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jinja/calls.h"
#include "jinja/value.h"

namespace kvcal::jinja {

/// format % values, as Python's str does it.
Value format_percent(Run& run, std::string_view format, const Value& values);

/// format.format(*args, **kwargs) as Jinja2's sandbox does it: fields {}, {0}, {name}, with
/// .attribute, [key], conversions !r and !s, and format specifications that hold no further fields.
Value format_braces(Interpreter& interpreter, std::string_view format,
                    const CallArguments& arguments);

/// How a number is laid out: [[fill]align][sign][#][0][width][,][.precision][type].
/// Source: Python, string, "Format specification mini-language".
struct FormatSpec {
  char32_t fill = ' ';
  char align = 0;  ///< '<', '>', '^', '=' or 0
  char sign = '-';
  bool is_alternate = false, has_zeros = false;
  char grouping = 0;  ///< ',' or '_'
  int64_t width = 0, precision = -1;
  char type = 0;
};
FormatSpec parse_format_spec(std::string_view text);
/// format(value, spec)
Text formatted(Run& run, const Value& value, const FormatSpec& spec);
/// body with fill up to width code points; sign and prefix of a number stay before zeros ('=').
Text padded(Run& run, std::string_view sign, std::string_view body, const FormatSpec& spec,
            char align);

}  // namespace kvcal::jinja
