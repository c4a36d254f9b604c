#pragma once

#include "core/json.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace kvcal {

/// A string as a YAML scalar: plain where YAML 1.1 reads the same string back, else in single
/// quotes, or in double quotes where it needs an escape.
std::string yaml_string(std::string_view text);

/// A value in flow style after "key:" in a line that already has `column` characters. Breaks lines
/// only between items, at 88 characters, and indents them by `indent`. Source: PyYAML `emitter.py`,
/// as llm-compressor calls it.
std::string yaml_flow(const Json& value, size_t column, size_t indent);

}  // namespace kvcal
