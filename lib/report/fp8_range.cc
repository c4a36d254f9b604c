#include "report/fp8_range.h"

namespace kvcal::report {

Fp8Range fp8_range(double scale, fp8::Format format) {
  const auto smallest = static_cast<double>(fp8::decode(1, format));
  const auto first_normal = static_cast<uint8_t>(1u << fp8::layout_of(format).mantissa_bits);
  return {.to_zero = scale * smallest / 2,
          .normal = scale * static_cast<double>(fp8::decode(first_normal, format)),
          .largest = scale * static_cast<double>(fp8::max_value(format))};
}

RangeShares shares_of(const OctaveCounts& counts, const Fp8Range& range) {
  const auto total = static_cast<double>(counts.total());
  if (total == 0.0) return {};
  const double to_zero = count_below(counts, range.to_zero) / total;
  return {.to_zero = to_zero, .subnormal = count_below(counts, range.normal) / total - to_zero};
}

}  // namespace kvcal::report
