#pragma once

#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "warp.h"

// The PTX instructions that the judge executes. Source of what they do: PTX ISA 9.0, chapter 9.
namespace kvcal::ptx {

/// An instruction's name with all its modifiers, and what it does.
struct Opcode {
  Handler run = nullptr;
  /// One letter an operand: p, w and l read a register of Kind, P, W and L write it, @ is an
  /// address with an offset.
  std::string operands;
  Flow flow = Flow::kNext;
};

/// Letter of a register that holds T.
template <class T>
constexpr char letter_of = sizeof(T) == 8 ? 'l' : 'w';
template <class T>
constexpr char result_letter_of = sizeof(T) == 8 ? 'L' : 'W';

/// result = F(arguments...) in each lane.
template <class F, class Result, class... Arguments>
void run_each(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    const Register<Result> result(warp, instruction.operands[0]);
    const std::tuple<Register<Arguments>...> arguments(
        Register<Arguments>(warp, instruction.operands[1 + kIndex])...);
    for_lanes(lanes, [&](int lane) {
      result.set(lane, static_cast<Result>(F{}(std::get<kIndex>(arguments)[lane]...)));
    });
  }
  (std::index_sequence_for<Arguments...>{});
}

/// Sets the bits of lanes in a predicate.
inline void set_predicate(Warp& warp, Slot slot, uint32_t value, uint32_t lanes) {
  uint32_t& mask = warp.mask(slot);
  mask = (mask & ~lanes) | (value & lanes);
}

/// predicate = F(a, b) in each lane.
template <class F, class T>
void run_comparison(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Register<T> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]);
  uint32_t value = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    value |= static_cast<uint32_t>(static_cast<bool>(F{}(a[lane], b[lane]))) << lane;
  set_predicate(warp, instruction.operands[0], value, lanes);
}

class Opcodes {
 public:
  /// All that the judge knows.
  static const Opcodes& all();
  /// nullptr where the name is unknown.
  const Opcode* find(const std::string& name) const;

  void add(const std::string& name, Handler run, std::string operands, Flow flow = Flow::kNext) {
    opcodes_[name] = {run, std::move(operands), flow};
  }
  /// Another name of the same.
  void alias(const std::string& name, const std::string& known) {
    opcodes_[name] = opcodes_.at(known);
  }
  /// function computes a lane's result from its arguments.
  template <class Result, class... Arguments, class F>
  void add_each(const std::string& name, F) {
    add(name, &run_each<F, Result, Arguments...>,
        std::string{result_letter_of<Result>, letter_of<Arguments>...});
  }
  template <class T, class F>
  void add_comparison(const std::string& name, F) {
    add(name, &run_comparison<F, T>, std::string{'P', letter_of<T>, letter_of<T>});
  }

 private:
  std::unordered_map<std::string, Opcode> opcodes_;
};

void add_integer_opcodes(Opcodes& opcodes);
void add_bit_opcodes(Opcodes& opcodes);
void add_float_opcodes(Opcodes& opcodes);
void add_conversion_opcodes(Opcodes& opcodes);
void add_move_opcodes(Opcodes& opcodes);
void add_memory_opcodes(Opcodes& opcodes);
void add_atomic_opcodes(Opcodes& opcodes);
void add_warp_opcodes(Opcodes& opcodes);
void add_matrix_opcodes(Opcodes& opcodes);
void add_warpgroup_opcodes(Opcodes& opcodes);

}  // namespace kvcal::ptx
