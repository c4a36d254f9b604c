#include "rewrite/key_error.h"

#include <algorithm>
#include <cmath>

#include "quant/fp8.h"

namespace kvcal {
namespace {

/// Sums of one channel's errors.
struct ErrorSums {
  double sum = 0.0, squares = 0.0;

  void add(float error) {
    sum += double{error};
    squares += double{error} * double{error};
  }
  double variance(double count) const {
    return std::max(0.0, squares / count - sum / count * (sum / count));
  }
};

float cache_error(float value, float scale) {
  return fp8::decode(fp8::encode<fp8::Format::kE4m3Fn>(value / scale)) * scale - value;
}

}  // namespace

double key_error(std::span<const float> first, std::span<const float> second,
                 const UnitChange& change, std::span<const float> scales) {
  if (first.empty()) return 0.0;
  const auto cos = static_cast<float>(std::cos(change.angle)) * change.factor;
  const auto sin = static_cast<float>(std::sin(change.angle)) * change.factor;
  const auto count = static_cast<double>(first.size());
  double error = 0.0;
  for (const float scale : scales) {
    ErrorSums one, other;
    for (size_t i = 0; i < first.size(); ++i) {
      if (second.empty()) {
        one.add(cache_error((first[i] + change.offset) * change.factor, scale));
        continue;
      }
      one.add(cache_error(cos * first[i] - sin * second[i], scale));
      other.add(cache_error(sin * first[i] + cos * second[i], scale));
    }
    error += one.variance(count) + other.variance(count);
  }
  return error / (double{change.factor} * double{change.factor});
}

}  // namespace kvcal
