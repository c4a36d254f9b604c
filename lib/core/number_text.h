#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// value as printf's format writes it: fixed("%.4f", x).
std::string fixed(const char* format, double value);
/// Six significant digits, as people read scales.
std::string short_float(double value);
/// "0.12 %", or "0" for none.
std::string percent(double fraction);
/// "269.1 MB"
std::string byte_text(double bytes);
/// "0-4, 6-10, 12" of ascending numbers.
std::string range_text(const std::vector<int64_t>& numbers);

/// Reads "0.5%" or "0.005": a fraction from 0 on. Throws Error.
double parse_fraction(std::string_view text);
/// The same up to 1, for a share of a whole. Throws Error.
double parse_part(std::string_view text);

}  // namespace kvcal
