// Arithmetic and comparisons of floats. What a chip approximates (ex2, lg2, rcp, rsqrt, sin, cos,
// tanh) is rounded from the exact value here; results of a chip differ by its documented error.
#include <cmath>
#include <limits>

#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// Subnormals become zeros, as .ftz says.
float flushed(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return (bits & 0x7f800000) == 0 ? std::bit_cast<float>(bits & 0x80000000) : x;
}

/// NaN is smaller than all; -0 is smaller than +0.
template <class T>
T maximum(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T minimum(T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

/// What a + b, rounded to sum, leaves.
template <class T>
T error_of_sum(T a, T b, T sum) {
  const T b_part = sum - a;
  return (a - (sum - b_part)) + (b - b_part);
}

/// a + b rounded toward zero.
float add_toward_zero(float a, float b) {
  const float sum = a + b;
  if (!std::isfinite(sum))
    return std::isfinite(a) && std::isfinite(b)
               ? std::copysign(std::numeric_limits<float>::max(), sum)
               : sum;
  const float left = error_of_sum(a, b, sum);
  const bool is_too_large = (sum > 0 && left < 0) || (sum < 0 && left > 0);
  return is_too_large ? std::nextafter(sum, 0.0f) : sum;
}

/// a · b + c rounded toward minus infinity.
float fused_downward(float a, float b, float c) {
  const double product = double{a} * double{b};  // exact
  const double sum = product + double{c};
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double left = error_of_sum(product, double{c}, sum);
  const auto nearest = static_cast<float>(sum);
  if (std::isinf(nearest)) return nearest > 0 ? std::numeric_limits<float>::max() : nearest;
  const double above = double{nearest} - sum;
  const bool is_above = above > 0 || (above == 0 && left < 0);
  return is_above ? std::nextafter(nearest, -INFINITY) : nearest;
}

/// Clamped to [0, 1]; NaN becomes 0.
float saturated(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

template <class T>
void add_arithmetic(Opcodes& opcodes, const std::string& type) {
  opcodes.add_each<T, T, T>("add.rn." + type, [](T a, T b) { return a + b; });
  opcodes.add_each<T, T, T>("sub.rn." + type, [](T a, T b) { return a - b; });
  opcodes.add_each<T, T, T>("mul.rn." + type, [](T a, T b) { return a * b; });
  for (const std::string operation : {"add.", "sub.", "mul."})
    opcodes.alias(operation + type, operation + "rn." + type);
  opcodes.add_each<T, T, T>("div.rn." + type, [](T a, T b) { return a / b; });
  opcodes.add_each<T, T, T, T>("fma.rn." + type, [](T a, T b, T c) { return std::fma(a, b, c); });
  opcodes.add_each<T, T>("rcp.rn." + type, [](T a) { return 1 / a; });
  opcodes.add_each<T, T>("sqrt.rn." + type, [](T a) { return std::sqrt(a); });
  opcodes.add_each<T, T>("abs." + type, [](T a) { return std::fabs(a); });
  opcodes.add_each<T, T>("neg." + type, [](T a) { return -a; });
  opcodes.add_each<T, T, T>("copysign." + type, [](T a, T b) { return std::copysign(b, a); });
  opcodes.add_each<T, T, T>("min." + type, [](T a, T b) { return minimum(a, b); });
  opcodes.add_each<T, T, T>("max." + type, [](T a, T b) { return maximum(a, b); });
}

/// The names that end in u are true where one number is NaN.
template <class T>
void add_comparisons(Opcodes& opcodes, const std::string& type) {
  opcodes.add_comparison<T>("setp.eq." + type, [](T a, T b) { return a == b; });
  opcodes.add_comparison<T>("setp.ne." + type, [](T a, T b) { return a < b || a > b; });
  opcodes.add_comparison<T>("setp.lt." + type, [](T a, T b) { return a < b; });
  opcodes.add_comparison<T>("setp.le." + type, [](T a, T b) { return a <= b; });
  opcodes.add_comparison<T>("setp.gt." + type, [](T a, T b) { return a > b; });
  opcodes.add_comparison<T>("setp.ge." + type, [](T a, T b) { return a >= b; });
  opcodes.add_comparison<T>("setp.equ." + type, [](T a, T b) { return !(a < b || a > b); });
  opcodes.add_comparison<T>("setp.neu." + type, [](T a, T b) { return a != b; });
  opcodes.add_comparison<T>("setp.ltu." + type, [](T a, T b) { return !(a >= b); });
  opcodes.add_comparison<T>("setp.leu." + type, [](T a, T b) { return !(a > b); });
  opcodes.add_comparison<T>("setp.gtu." + type, [](T a, T b) { return !(a <= b); });
  opcodes.add_comparison<T>("setp.geu." + type, [](T a, T b) { return !(a < b); });
  opcodes.add_comparison<T>("setp.num." + type, [](T a, T b) { return a == a && b == b; });
  opcodes.add_comparison<T>("setp.nan." + type, [](T a, T b) { return a != a || b != b; });
}

/// The approximations with and without .ftz, which also flushes their results.
template <class F>
void add_approximation(Opcodes& opcodes, const std::string& name, F) {
  opcodes.add_each<float, float>(name + ".approx.f32", [](float x) { return F{}(x); });
  opcodes.add_each<float, float>(name + ".approx.ftz.f32",
                                 [](float x) { return flushed(F{}(flushed(x))); });
}

}  // namespace

void add_float_opcodes(Opcodes& opcodes) {
  add_arithmetic<float>(opcodes, "f32");
  add_arithmetic<double>(opcodes, "f64");
  add_comparisons<float>(opcodes, "f32");
  add_comparisons<double>(opcodes, "f64");
  opcodes.add_each<float, float, float>("add.rz.f32",
                                        [](float a, float b) { return add_toward_zero(a, b); });
  opcodes.add_each<float, float, float, float>(
      "fma.rm.f32", [](float a, float b, float c) { return fused_downward(a, b, c); });
  opcodes.add_each<float, float>("cvt.sat.f32.f32", [](float x) { return saturated(x); });
  add_approximation(opcodes, "ex2", [](float x) { return std::exp2(x); });
  add_approximation(opcodes, "lg2", [](float x) { return std::log2(x); });
  add_approximation(opcodes, "rcp", [](float x) { return 1.0f / x; });
  add_approximation(opcodes, "sqrt", [](float x) { return std::sqrt(x); });
  add_approximation(opcodes, "rsqrt", [](float x) { return 1.0f / std::sqrt(x); });
  add_approximation(opcodes, "sin", [](float x) { return std::sin(x); });
  add_approximation(opcodes, "cos", [](float x) { return std::cos(x); });
  // Its lower half is zero on a chip; a division's steps correct it.
  opcodes.add_each<double, double>("rcp.approx.ftz.f64", [](double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(1.0 / x);
    return std::isnan(x) ? x : std::bit_cast<double>(bits & ~uint64_t{0xffffffff});
  });
}

}  // namespace kvcal::ptx
