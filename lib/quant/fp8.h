#pragma once

// Replaced by the codec; only the names other headers need.
namespace kvcal::fp8 {
enum class Format : unsigned char { kE4m3Fn, kE4m3Fnuz, kE5m2 };
constexpr float max_value(Format format) {
  return format == Format::kE4m3Fn ? 448.0f : format == Format::kE4m3Fnuz ? 240.0f : 57344.0f;
}
}  // namespace kvcal::fp8
