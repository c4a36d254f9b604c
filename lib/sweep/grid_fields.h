#pragma once

#include "recipe/fields.h"
#include "sweep/sweep_file.h"

namespace kvcal {

/// The value of `grid`, one map of dimensions or a list of them, into a sweep whose models and
/// recipes are read; sources of scales are added to it. A dimension that a grid leaves out takes
/// its default, which of models and recipes is all.
void read_grids(const Field& field, const std::filesystem::path& folder, SweepFile& sweep);

/// Checks the name of a model, recipe or scale of a sweep. Names stand in ids, on command lines and
/// in tables. Throws Error with line and column where the node's text cannot be one. path: of the
/// node.
void check_name(const YamlNode& node, const std::string& path);

/// The last part of a path as a name; other characters are '-'.
std::string name_from(const std::filesystem::path& path);

}  // namespace kvcal
