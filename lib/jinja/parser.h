#pragma once

#include <string_view>

#include "jinja/syntax.h"

namespace kvcal::jinja {

/// Parses a template (valid UTF-8). Throws Error with the line and what was found. What Jinja2 has
/// and chat templates do not use (include, import, extends, block, autoescape, recursive loops) is
/// refused by name.
SyntaxTree parse(std::string_view source);

}  // namespace kvcal::jinja
