#include "opcodes.h"

namespace kvcal::ptx {

const Opcodes& Opcodes::all() {
  static const Opcodes known = [] {
    Opcodes opcodes;
    for (const auto add :
         {add_integer_opcodes, add_bit_opcodes, add_float_opcodes, add_conversion_opcodes,
          add_move_opcodes, add_memory_opcodes, add_atomic_opcodes, add_warp_opcodes,
          add_matrix_opcodes, add_warpgroup_opcodes})
      add(opcodes);
    return opcodes;
  }();
  return known;
}

const Opcode* Opcodes::find(const std::string& name) const {
  const auto found = opcodes_.find(name);
  return found == opcodes_.end() ? nullptr : &found->second;
}

}  // namespace kvcal::ptx
