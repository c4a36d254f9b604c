#pragma once

#include "core/json.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace kvcal {

/// A string as a YAML scalar: plain where YAML 1.1 reads the same string back, else in single
/// quotes, or double ones where only an escape will do.
std::string yaml_string(std::string_view text);

/// A value in flow style after "key:" in a line of which `column` characters are written; goes on
/// in lines indented by `indent` where one is full (88 characters), between items only. Source:
/// PyYAML `emitter.py`, as llm-compressor calls it.
std::string yaml_flow(const Json& value, size_t column, size_t indent);

}  // namespace kvcal
