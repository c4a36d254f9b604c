#pragma once

#include <string_view>

namespace kvcal {

/// Throws Error if pattern, as matches_target takes it, is empty, no regular expression, or one
/// that Python's `re` would read in another way than we do.
void check_target(std::string_view pattern);

}  // namespace kvcal
