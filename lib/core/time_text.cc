#include "core/time_text.h"

#include <cmath>
#include <cstdio>

namespace kvcal {

std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  char text[48];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

}  // namespace kvcal
