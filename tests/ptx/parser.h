#pragma once

#include <map>
#include <string>
#include <vector>

#include "program.h"
#include "source.h"

namespace kvcal::ptx {

/// What a module gives to its kernels.
struct ModuleScope {
  std::map<std::string, uint64_t, std::less<>> globals;  ///< addresses
  std::map<std::string, Declaration, std::less<>> shared;
};

/// Throws Error, naming the line and the instruction, where the judge does not know something.
Kernel parse_kernel(const Entry& entry, const ModuleScope& scope);

/// A register before it has a place in the file.
struct VirtualRegister {
  Kind kind = Kind::kWord;
  bool is_fixed = false;  ///< a constant or a special register
};

/// Replaces the numbers of registers in operands and predicates by slots, so that registers that
/// are never needed together share one: the files of a block's warps then fit a cache. Registers
/// that may be read before they are written share with none, so that they stay poisoned.
/// is_written: of each operand. slots gets those of all registers, by number.
void assign_slots(Kernel& kernel, const std::vector<VirtualRegister>& registers,
                  const std::vector<bool>& is_written, std::vector<Slot>& slots);

}  // namespace kvcal::ptx
