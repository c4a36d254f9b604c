#include "report/sparkline.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace kvcal::report {
namespace {

constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kPlain[] = {".", ":", "-", "=", "+", "*", "#", "@"};
constexpr int kLevels = 8;

/// Numbers that are nearly the same look so: the levels span a factor of 2 at least.
int level_of(double value, double least, double largest) {
  const double middle = std::sqrt(least * largest);
  const double span = std::max(2.0, largest / least);
  const double part = 0.5 + std::log(value / middle) / std::log(span);
  return std::clamp(static_cast<int>(part * kLevels), 0, kLevels - 1);
}

}  // namespace

std::pair<double, double> positive_range(const std::vector<double>& values) {
  double least = std::nan(""), largest = std::nan("");
  for (const double value : values) {
    if (!(value > 0.0)) continue;
    if (!(value >= least)) least = value;
    if (!(value <= largest)) largest = value;
  }
  return {least, largest};
}

std::string sparkline(const std::vector<double>& values, bool has_unicode) {
  const auto [least, largest] = positive_range(values);
  std::string line;
  for (const double value : values) {
    const int level = value > 0.0 ? level_of(value, least, largest) : -1;
    line += level < 0 ? " " : has_unicode ? kBlocks[level] : kPlain[level];
  }
  return line;
}

}  // namespace kvcal::report
