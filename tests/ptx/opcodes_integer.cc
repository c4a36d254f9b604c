// Arithmetic and comparisons of integers.
#include <limits>
#include <type_traits>

#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// The unsigned type in which T's arithmetic wraps; at least 32 bits, because C++ promotes smaller
/// ones to signed integers.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

/// T with twice the bits.
template <class T>
struct Wider;
template <>
struct Wider<int16_t> : std::type_identity<int32_t> {};
template <>
struct Wider<uint16_t> : std::type_identity<uint32_t> {};
template <>
struct Wider<int32_t> : std::type_identity<int64_t> {};
template <>
struct Wider<uint32_t> : std::type_identity<uint64_t> {};
__extension__ typedef __int128 Signed128;
__extension__ typedef unsigned __int128 Unsigned128;
template <>
struct Wider<int64_t> : std::type_identity<Signed128> {};
template <>
struct Wider<uint64_t> : std::type_identity<Unsigned128> {};

/// The result of a division by zero is unspecified: all ones show it.
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1))
    return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(a));
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <class T>
void add_arithmetic(Opcodes& opcodes, const std::string& type) {
  using W = Wrapping<T>;
  opcodes.add_each<T, T, T>("add." + type, [](T a, T b) { return W(a) + W(b); });
  opcodes.add_each<T, T, T>("sub." + type, [](T a, T b) { return W(a) - W(b); });
  opcodes.add_each<T, T, T>("mul.lo." + type, [](T a, T b) { return W(a) * W(b); });
  opcodes.add_each<T, T, T, T>("mad.lo." + type, [](T a, T b, T c) { return W(a) * W(b) + W(c); });
  opcodes.add_each<T, T, T>("mul.hi." + type, [](T a, T b) {
    using Product = typename Wider<T>::type;
    return static_cast<T>((static_cast<Product>(a) * static_cast<Product>(b)) >> (8 * sizeof(T)));
  });
  opcodes.add_each<T, T, T>("div." + type, [](T a, T b) { return divide(a, b); });
  opcodes.add_each<T, T, T>("rem." + type, [](T a, T b) { return remainder(a, b); });
  opcodes.add_each<T, T, T>("min." + type, [](T a, T b) { return a < b ? a : b; });
  opcodes.add_each<T, T, T>("max." + type, [](T a, T b) { return a > b ? a : b; });
  opcodes.add_each<T, T>("neg." + type, [](T a) { return W{0} - W(a); });
  opcodes.add_each<T, T>("abs." + type, [](T a) { return a < T{0} ? W{0} - W(a) : W(a); });
}

template <class T>
void add_wide_products(Opcodes& opcodes, const std::string& type) {
  using Product = typename Wider<T>::type;
  opcodes.add_each<Product, T, T>(
      "mul.wide." + type, [](T a, T b) { return static_cast<Product>(Product{a} * Product{b}); });
  opcodes.add_each<Product, T, T, Product>("mad.wide." + type, [](T a, T b, Product c) {
    return static_cast<Wrapping<Product>>(Product{a} * Product{b}) +
           static_cast<Wrapping<Product>>(c);
  });
}

template <class T>
void add_comparisons(Opcodes& opcodes, const std::string& type) {
  opcodes.add_comparison<T>("setp.eq." + type, [](T a, T b) { return a == b; });
  opcodes.add_comparison<T>("setp.ne." + type, [](T a, T b) { return a != b; });
  opcodes.add_comparison<T>("setp.lt." + type, [](T a, T b) { return a < b; });
  opcodes.add_comparison<T>("setp.le." + type, [](T a, T b) { return a <= b; });
  opcodes.add_comparison<T>("setp.gt." + type, [](T a, T b) { return a > b; });
  opcodes.add_comparison<T>("setp.ge." + type, [](T a, T b) { return a >= b; });
}

template <class T>
void add_all(Opcodes& opcodes, const std::string& type) {
  add_arithmetic<T>(opcodes, type);
  add_comparisons<T>(opcodes, type);
}

}  // namespace

void add_integer_opcodes(Opcodes& opcodes) {
  add_all<int16_t>(opcodes, "s16");
  add_all<uint16_t>(opcodes, "u16");
  add_all<int32_t>(opcodes, "s32");
  add_all<uint32_t>(opcodes, "u32");
  add_all<int64_t>(opcodes, "s64");
  add_all<uint64_t>(opcodes, "u64");
  add_wide_products<int16_t>(opcodes, "s16");
  add_wide_products<uint16_t>(opcodes, "u16");
  add_wide_products<int32_t>(opcodes, "s32");
  add_wide_products<uint32_t>(opcodes, "u32");
  for (const std::string comparison : {"setp.eq.", "setp.ne."})
    for (const std::string bits : {"16", "32", "64"})
      opcodes.alias(comparison + "b" + bits, comparison + "u" + bits);
}

}  // namespace kvcal::ptx
