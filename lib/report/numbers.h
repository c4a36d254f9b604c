#pragma once

#include <string>
#include <vector>

namespace kvcal::report {

/// Numbers as people read them: some significant digits, "0.02405"; "–" for NaN.
std::string number_text(double value, int significant = 4);
/// A fraction in per cent, "0.12 %"; "0" for none, "–" for NaN.
std::string share_text(double fraction);
/// One number, or the least and the largest: "0.01 – 0.02"; "–" for none.
std::string range_text(const std::vector<float>& values);
/// A length or place in a drawing, rounded to a tenth.
std::string coordinate(double value);

}  // namespace kvcal::report
