// Logic, shifts and rearranged bits.
#include <algorithm>

#include "opcodes.h"

namespace kvcal::ptx {
namespace {

template <class T>
void add_logic(Opcodes& opcodes, const std::string& bits) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  opcodes.add_each<T, T, T>("and.b" + bits, [](T a, T b) { return a & b; });
  opcodes.add_each<T, T, T>("or.b" + bits, [](T a, T b) { return a | b; });
  opcodes.add_each<T, T, T>("xor.b" + bits, [](T a, T b) { return a ^ b; });
  opcodes.add_each<T, T>("not.b" + bits, [](T a) { return ~a; });
  opcodes.add_each<T, T, uint32_t>(
      "shl.b" + bits, [](T a, uint32_t by) { return by < kBits ? static_cast<T>(a << by) : T{0}; });
  opcodes.add_each<T, T, uint32_t>(
      "shr.u" + bits, [](T a, uint32_t by) { return by < kBits ? static_cast<T>(a >> by) : T{0}; });
  opcodes.alias("shr.b" + bits, "shr.u" + bits);
  using Signed = std::make_signed_t<T>;
  opcodes.add_each<Signed, Signed, uint32_t>("shr.s" + bits, [](Signed a, uint32_t by) {
    return static_cast<Signed>(a >> std::min(by, kBits - 1));
  });
}

/// Bytes of b:a chosen by four selectors of four bits; the selector's upper bit repeats the sign.
uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> (4 * i) & 15;
    auto byte = static_cast<uint8_t>(both >> (8 * (selector & 7)));
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= static_cast<uint32_t>(byte) << (8 * i);
  }
  return result;
}

/// b with `count` bits of a put at `at`.
template <class T>
T insert_bits(T a, T b, uint32_t at, uint32_t count) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  at &= 0xff;
  count &= 0xff;
  if (at >= kBits) return b;
  const T mask = (count >= kBits ? ~T{0} : (T{1} << count) - 1) << at;
  return (b & ~mask) | (a << at & mask);
}

template <class T>
void add_insertion(Opcodes& opcodes, const std::string& bits) {
  opcodes.add_each<T, T, T, uint32_t, uint32_t>(
      "bfi.b" + bits,
      [](T a, T b, uint32_t at, uint32_t count) { return insert_bits(a, b, at, count); });
}

/// The upper or the lower word of b:a shifted.
uint32_t funnel_left(uint32_t a, uint32_t b, uint32_t by) {
  return static_cast<uint32_t>((static_cast<uint64_t>(b) << 32 | a) << by >> 32);
}
uint32_t funnel_right(uint32_t a, uint32_t b, uint32_t by) {
  return static_cast<uint32_t>((static_cast<uint64_t>(b) << 32 | a) >> by);
}

using U = uint32_t;

void add_funnel_shifts(Opcodes& opcodes) {
  opcodes.add_each<U, U, U, U>("shf.l.wrap.b32",
                               [](U a, U b, U by) { return funnel_left(a, b, by & 31); });
  opcodes.add_each<U, U, U, U>("shf.r.wrap.b32",
                               [](U a, U b, U by) { return funnel_right(a, b, by & 31); });
  opcodes.add_each<U, U, U, U>("shf.l.clamp.b32",
                               [](U a, U b, U by) { return funnel_left(a, b, std::min(by, 32u)); });
  opcodes.add_each<U, U, U, U>(
      "shf.r.clamp.b32", [](U a, U b, U by) { return funnel_right(a, b, std::min(by, 32u)); });
}

}  // namespace

void add_bit_opcodes(Opcodes& opcodes) {
  add_logic<uint16_t>(opcodes, "16");
  add_logic<uint32_t>(opcodes, "32");
  add_logic<uint64_t>(opcodes, "64");
  add_funnel_shifts(opcodes);
  opcodes.add_each<U, U, U, U>("prmt.b32", [](U a, U b, U s) { return permute_bytes(a, b, s); });
  add_insertion<uint32_t>(opcodes, "32");
  add_insertion<uint64_t>(opcodes, "64");
  opcodes.add_each<U, U>("clz.b32", [](U a) { return static_cast<U>(std::countl_zero(a)); });
  opcodes.add_each<U, uint64_t>("clz.b64",
                                [](uint64_t a) { return static_cast<U>(std::countl_zero(a)); });
  opcodes.add_each<U, U>("popc.b32", [](U a) { return static_cast<U>(std::popcount(a)); });
}

}  // namespace kvcal::ptx
