#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvcal::report {

/// A character a value, eight levels in even ratios between the least and the largest that are
/// positive, or around them where they are nearer than a factor of 2; a blank for what is not
/// positive. Blocks, or plain characters without has_unicode.
std::string sparkline(const std::vector<double>& values, bool has_unicode);

/// The least and the largest that are positive; both NaN for none.
std::pair<double, double> positive_range(const std::vector<double>& values);

}  // namespace kvcal::report
