#pragma once

#include "recipe/fields.h"
#include "sweep/sweep_file.h"

namespace kvcal {

/// The value of `grid`, one map of dimensions or a list of them, into a sweep whose models and
/// recipes are read; sources of scales are added to it. A dimension that a grid leaves out takes
/// its default, which of models and recipes is all.
void read_grids(const Field& field, const std::filesystem::path& folder, SweepFile& sweep);

}  // namespace kvcal
