#include "report/log_axis.h"

#include <algorithm>
#include <cmath>

#include "report/numbers.h"

namespace kvcal::report {

LogAxis::LogAxis(double least, double largest, double begin, double end)
    : least_(least), largest_(std::max(largest, least * 1.0001)), begin_(begin), end_(end) {}

double LogAxis::at(double value) const {
  const double inside = std::clamp(value, least_, largest_);
  return begin_ + (end_ - begin_) * std::log(inside / least_) / std::log(largest_ / least_);
}

std::vector<double> LogAxis::ticks(int most) const {
  const int first = static_cast<int>(std::floor(std::log10(least_)));
  const int last = static_cast<int>(std::ceil(std::log10(largest_)));
  const int step = std::max(1, (last - first + most - 1) / most);
  std::vector<double> ticks;
  for (int decade = first; decade <= last; decade += step)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, decade);
      if (digit != 1.0 && last - first > 3) continue;
      if (value >= least_ * 0.999 && value <= largest_ * 1.001) ticks.push_back(value);
    }
  return ticks.size() < 2 ? even_ticks() : ticks;
}

std::vector<double> LogAxis::even_ticks() const {
  const double wanted = (largest_ - least_) / 4;
  const double decade = std::pow(10.0, std::floor(std::log10(wanted)));
  const double step = decade * (wanted < 2 * decade ? 1 : wanted < 5 * decade ? 2 : 5);
  std::vector<double> ticks;
  for (double i = std::ceil(least_ / step); i * step <= largest_; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string tick_text(double value) {
  const double exponent = std::round(std::log10(value));
  const bool is_power = std::abs(value / std::pow(10.0, exponent) - 1.0) < 1e-9;
  if (std::abs(exponent) <= 3.0 || !is_power) return number_text(value);
  return "1e" + number_text(exponent);
}

}  // namespace kvcal::report
