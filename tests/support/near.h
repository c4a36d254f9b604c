#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace kvcal::test {

/// The answer of a judge; prints its reason when a CHECK fails.
struct Verdict {
  bool holds = false;
  std::string reason;
  explicit operator bool() const { return holds; }
  friend std::ostream& operator<<(std::ostream& out, const Verdict& verdict) {
    return out << verdict.reason;
  }
};

/// Same bytes, element by element; names the first that differs.
template <class T>
Verdict same_bytes(const std::vector<T>& actual, const std::vector<T>& expected) {
  std::ostringstream reason;
  if (actual.size() != expected.size()) {
    reason << actual.size() << " elements, expected " << expected.size();
    return {false, reason.str()};
  }
  for (size_t i = 0; i < actual.size(); ++i)
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0) {
      reason << "element " << i << " of " << actual.size() << " differs";
      if constexpr (std::is_arithmetic_v<T>)
        reason << ": " << +actual[i] << ", not " << +expected[i];
      return {false, reason.str()};
    }
  return {true, "same bytes"};
}

/// Largest |a - b| over all elements; infinity where one is NaN.
inline double largest_error(std::span<const float> actual, std::span<const float> expected) {
  double largest = actual.size() == expected.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

/// 1 - 2xy / (x² + y²): 0 where the arrays agree; for sums, whose small elements carry the error of
/// large terms. Source: DeepGEMM, `calc_diff`.
inline Verdict agree_as_sums(std::span<const float> actual, std::span<const float> expected,
                             double limit = 1e-6) {
  double product = 0.0, squares = 0.0;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double x = actual[i], y = expected[i];
    product += x * y;
    squares += x * x + y * y;
  }
  const double distance = squares == 0.0 ? 0.0 : 1.0 - 2.0 * product / squares;
  std::ostringstream reason;
  reason << "distance " << distance << " (limit " << limit << "), largest absolute error "
         << largest_error(actual, expected);
  return {actual.size() == expected.size() && distance <= limit, reason.str()};
}

/// |a - b| <= limit · max(|b|, floor) for every element.
inline Verdict agree_relatively(std::span<const float> actual, std::span<const float> expected,
                                double limit = 1e-5, double floor = 0.0) {
  std::ostringstream reason;
  if (actual.size() != expected.size()) {
    reason << actual.size() << " elements, expected " << expected.size();
    return {false, reason.str()};
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], b = expected[i];
    if (!(std::fabs(a - b) <= limit * std::max(std::fabs(b), floor))) {
      reason << "element " << i << ": " << a << ", expected " << b;
      return {false, reason.str()};
    }
  }
  return {true, "within the limit"};
}

/// Numbers with mean 0 and about the given deviation, the same everywhere for one seed.
inline std::vector<float> normal(int64_t count, uint64_t seed, float deviation = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& value : values) {
    float sum = -6.0f;  // twelve uniform numbers: variance 1
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) * 0x1p-24f;
    }
    value = sum * deviation;
  }
  return values;
}

}  // namespace kvcal::test
