#pragma once

#include <filesystem>
#include <string>

#include "recipe/fields.h"

namespace kvcal {

/// What a sweep calls its models, recipes and scales: names stand in ids, on command lines and in
/// tables. Throws Error with line and column where the node's text cannot be one. path: of the
/// node.
void check_name(const YamlNode& node, const std::string& path);

/// The last part of a path as a name; other characters are '-'.
std::string name_from(const std::filesystem::path& path);

}  // namespace kvcal
