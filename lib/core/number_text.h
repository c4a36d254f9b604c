#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Formats value with a printf format: fixed("%.4f", x).
std::string fixed(const char* format, double value);
/// Formats a scale with six significant digits.
std::string short_float(double value);
/// "0.12 %", or "0" for none.
std::string percent(double fraction);
/// "269.1 MB"
std::string byte_text(double bytes);
/// "0-4, 6-10, 12" for ascending numbers.
std::string range_text(const std::vector<int64_t>& numbers);
/// "layer 3", or "layers 0-4, 9", for ascending numbers.
std::string layer_range_text(const std::vector<int64_t>& layers);

/// Parses "0.5%" or "0.005": a fraction from 0 to a million. Throws Error.
double parse_fraction(std::string_view text);
/// Parses a fraction of at most 1. Throws Error.
double parse_part(std::string_view text);

}  // namespace kvcal
