#pragma once

#include <string_view>

namespace kvcal {

/// Throws Error where pattern (see matches_target) is empty, is no regular expression, or means
/// something else in Python's `re`.
void check_target(std::string_view pattern);

}  // namespace kvcal
