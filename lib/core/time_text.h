#pragma once

#include <string>

namespace kvcal {

/// Seconds as people read them: "1:05:09", "4:30".
std::string time_text(double seconds);

}  // namespace kvcal
