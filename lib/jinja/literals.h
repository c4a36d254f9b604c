#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvcal::jinja {

/// Bytes of the number that text starts with, 0 if there is none. Source: Jinja2 3.1, lexer.py.
size_t float_length(std::string_view text);
size_t integer_length(std::string_view text);
/// Values of such literals. Throw Error when they do not fit 64 bits or are not finite.
int64_t integer_value(std::string_view literal);
double float_value(std::string_view literal);

/// A string literal's inner text with its escapes resolved as Python does. Throws Error for an
/// escape that is cut short, out of range, or makes half a surrogate pair.
std::string unescaped(std::string_view inner);

}  // namespace kvcal::jinja
