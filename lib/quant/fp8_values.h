#pragma once

#include <array>

#include "quant/fp8.h"

namespace kvcal::fp8 {

/// Values of all codes of a format.
struct CodeValues {
  std::array<float, 256> values{};
  constexpr explicit CodeValues(Format format) {
    for (size_t code = 0; code < values.size(); ++code)
      values[code] = decode(static_cast<uint8_t>(code), format);
  }
  constexpr float operator[](uint8_t code) const { return values[code]; }
};

inline constexpr CodeValues kE4m3Values(Format::kE4m3Fn);

}  // namespace kvcal::fp8
