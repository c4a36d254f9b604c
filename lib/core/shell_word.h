#pragma once

#include <string>

namespace kvcal {

/// text as one word of a POSIX shell, in single quotes where it needs them.
std::string shell_word(const std::string& text);

}  // namespace kvcal
