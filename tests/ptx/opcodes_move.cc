// Moves, choices, predicates and addresses of address spaces.
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// a where the predicate, the last operand, is true; otherwise b.
template <class T>
void choose(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Register<T> result(warp, instruction.operands[0]), a(warp, instruction.operands[1]),
      b(warp, instruction.operands[2]);
  const uint32_t predicate = warp.mask(instruction.operands[3]);
  for_lanes(lanes, [&](int lane) { result.set(lane, predicate >> lane & 1 ? a[lane] : b[lane]); });
}

void add_moves(Opcodes& opcodes) {
  opcodes.add_each<uint16_t, uint16_t>("mov.b16", [](uint16_t x) { return x; });
  opcodes.add_each<uint32_t, uint32_t>("mov.b32", [](uint32_t x) { return x; });
  opcodes.add_each<uint64_t, uint64_t>("mov.b64", [](uint64_t x) { return x; });
  opcodes.add("selp.b16", &choose<uint32_t>, "Wwwp");
  opcodes.add("selp.b32", &choose<uint32_t>, "Wwwp");
  opcodes.add("selp.b64", &choose<uint64_t>, "Lllp");
  for (const std::string operation : {"mov.", "selp."})
    for (const std::string bits : {"16", "32", "64"})
      for (const std::string type : {"u", "s", "f"})
        opcodes.alias(operation + type + bits, operation + "b" + bits);
}

template <int kIndex>
uint32_t half_at(uint32_t word) {
  return word >> (16 * kIndex) & 0xffff;
}

/// mov between a register and the registers of its parts, from the lower one on. The parser marks
/// these names.
void add_packing(Opcodes& opcodes) {
  opcodes.add(
      "mov.b32.unpack",
      [](Warp& warp, const Instruction& instruction, uint32_t lanes) {
        const Register<uint32_t> from(warp, instruction.operands[2]);
        for_lanes(lanes, [&](int lane) {
          const uint32_t value = from[lane];
          warp.words(instruction.operands[0])[lane] = half_at<0>(value);
          warp.words(instruction.operands[1])[lane] = half_at<1>(value);
        });
      },
      "WWw");
  opcodes.add(
      "mov.b64.unpack",
      [](Warp& warp, const Instruction& instruction, uint32_t lanes) {
        const Register<uint64_t> from(warp, instruction.operands[2]);
        for_lanes(lanes, [&](int lane) {
          const uint64_t value = from[lane];
          warp.words(instruction.operands[0])[lane] = static_cast<uint32_t>(value);
          warp.words(instruction.operands[1])[lane] = static_cast<uint32_t>(value >> 32);
        });
      },
      "WWl");
  opcodes.add_each<uint32_t, uint16_t, uint16_t>("mov.b32.pack", [](uint16_t low, uint16_t high) {
    return static_cast<uint32_t>(high) << 16 | low;
  });
  opcodes.add_each<uint64_t, uint32_t, uint32_t>("mov.b64.pack", [](uint32_t low, uint32_t high) {
    return static_cast<uint64_t>(high) << 32 | low;
  });
}

/// result = F(predicates...) of all lanes at once.
template <class F>
void combine(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Slot* const operands = instruction.operands;
  uint32_t value = 0;
  if constexpr (std::is_invocable_v<F, uint32_t, uint32_t>)
    value = F{}(warp.mask(operands[1]), warp.mask(operands[2]));
  else
    value = F{}(warp.mask(operands[1]));
  set_predicate(warp, operands[0], value, lanes);
}
template <class F>
void add_predicate(Opcodes& opcodes, const std::string& name, F) {
  opcodes.add(name, &combine<F>, std::is_invocable_v<F, uint32_t, uint32_t> ? "Ppp" : "Pp");
}

void add_addresses(Opcodes& opcodes) {
  for (const std::string space : {"cvta.to.global.u64", "cvta.global.u64"})
    opcodes.alias(space, "mov.b64");
  using U = uint64_t;
  opcodes.add_each<U, U>("cvta.shared.u64", [](U address) { return address + kSharedWindow; });
  opcodes.add_each<U, U>("cvta.to.shared.u64", [](U address) { return address - kSharedWindow; });
  opcodes.add_each<U, U>("cvta.local.u64", [](U address) { return address + kLocalWindow; });
  opcodes.add_each<U, U>("cvta.to.local.u64", [](U address) { return address - kLocalWindow; });
}

}  // namespace

void add_move_opcodes(Opcodes& opcodes) {
  add_moves(opcodes);
  add_packing(opcodes);
  using U = uint32_t;
  add_predicate(opcodes, "mov.pred", [](U a) { return a; });
  add_predicate(opcodes, "not.pred", [](U a) { return ~a; });
  add_predicate(opcodes, "and.pred", [](U a, U b) { return a & b; });
  add_predicate(opcodes, "or.pred", [](U a, U b) { return a | b; });
  add_predicate(opcodes, "xor.pred", [](U a, U b) { return a ^ b; });
  add_addresses(opcodes);
}

}  // namespace kvcal::ptx
