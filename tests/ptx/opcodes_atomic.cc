// Atomic operations. Blocks run on several threads, so those of global memory are atomic here too.
#include <atomic>

#include "addresses.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// The bytes of a lane's atomic access to T.
template <class T, Space kSpace>
T& place_of(Warp& warp, const Instruction& instruction, Slot slot, int lane) {
  const uint64_t address = address_of(warp, instruction, slot, lane);
  std::byte* bytes = nullptr;
  if constexpr (kSpace == Space::kShared)
    bytes = warp.block().shared.access_atomically(warp, instruction, static_cast<uint32_t>(address),
                                                  sizeof(T));
  else
    bytes = bytes_at<kSpace>(warp, instruction, address, {sizeof(T), true}, lane);
  return *reinterpret_cast<T*>(bytes);
}

/// Stores F(old, value); returns old.
template <class F, class T>
T exchange(T& place, T value) {
  const std::atomic_ref<T> shared(place);
  T old = shared.load();
  while (!shared.compare_exchange_weak(old, static_cast<T>(F{}(old, value)))) {
  }
  return old;
}

template <class F, class T, Space kSpace>
void run_atom(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Register<T> result(warp, instruction.operands[0]), value(warp, instruction.operands[2]);
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    T& place = place_of<T, kSpace>(warp, instruction, instruction.operands[1], lane);
    result.set(lane, exchange<F>(place, value[lane]));
  }
}
template <class F, class T, Space kSpace>
void run_red(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Register<T> value(warp, instruction.operands[1]);
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    exchange<F>(place_of<T, kSpace>(warp, instruction, instruction.operands[0], lane), value[lane]);
  }
}

template <class T, Space kSpace, class F>
void add_in(Opcodes& opcodes, const std::string& space, const std::string& operation, F) {
  const std::string value(1, letter_of<T>);
  for (const std::string scope : {"", ".relaxed.gpu", ".gpu"}) {
    opcodes.add("atom" + scope + space + operation, &run_atom<F, T, kSpace>,
                result_letter_of<T> + ("@" + value));
    opcodes.add("red" + scope + space + operation, &run_red<F, T, kSpace>, "@" + value);
  }
}
template <class T, class F>
void add_operation(Opcodes& opcodes, const std::string& operation, F function) {
  add_in<T, Space::kGlobal>(opcodes, ".global", operation, function);
  add_in<T, Space::kShared>(opcodes, ".shared", operation, function);
  add_in<T, Space::kGeneric>(opcodes, "", operation, function);
}
template <class T>
void add_orders(Opcodes& opcodes, const std::string& type) {
  add_operation<T>(opcodes, ".max." + type, [](T a, T b) { return a > b ? a : b; });
  add_operation<T>(opcodes, ".min." + type, [](T a, T b) { return a < b ? a : b; });
}

}  // namespace

void add_atomic_opcodes(Opcodes& opcodes) {
  add_orders<int32_t>(opcodes, "s32");
  add_orders<uint32_t>(opcodes, "u32");
  add_orders<int64_t>(opcodes, "s64");
  add_orders<uint64_t>(opcodes, "u64");
  using U = uint32_t;
  add_operation<U>(opcodes, ".add.u32", [](U a, U b) { return a + b; });
  add_operation<U>(opcodes, ".add.s32", [](U a, U b) { return a + b; });
  add_operation<uint64_t>(opcodes, ".add.u64", [](uint64_t a, uint64_t b) { return a + b; });
  add_operation<float>(opcodes, ".add.f32", [](float a, float b) { return a + b; });
  add_operation<U>(opcodes, ".or.b32", [](U a, U b) { return a | b; });
  add_operation<U>(opcodes, ".and.b32", [](U a, U b) { return a & b; });
  add_operation<U>(opcodes, ".exch.b32", [](U, U b) { return b; });
}

}  // namespace kvcal::ptx
