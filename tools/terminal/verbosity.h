#pragma once

#include <cstddef>

namespace kvcal {

/// How much the program says beside what it was asked for.
enum class Verbosity { kQuiet, kNormal, kVerbose };

/// Set once, while the command line is read.
void set_verbosity(Verbosity verbosity);
/// Whether progress, notes and summaries are left out.
bool is_quiet();
/// Whether a table of that many rows is printed; a longer one has a summary instead, unless the
/// user asks for all.
bool is_listed(size_t num_rows);

}  // namespace kvcal
