#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A kernel of the program under test as the judge executes it: PTX instructions, decoded once.
namespace kvcal::ptx {

class Warp;
struct Instruction;

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

/// Byte offset in a warp's register file: 32 words of 4 or of 8 bytes, one a lane, or a mask of
/// lanes for a predicate.
using Slot = uint32_t;

/// Register class. Registers of 16 bits occupy words, whose upper half is then undefined.
enum class Kind : uint8_t { kPredicate, kWord, kLong };
constexpr uint32_t bytes_of(Kind kind) {
  return kind == Kind::kPredicate ? 4 : kind == Kind::kWord ? 4 * kLanes : 8 * kLanes;
}

/// Executes an instruction for the lanes of a mask.
using Handler = void (*)(Warp&, const Instruction&, uint32_t lanes);

/// How an instruction moves a warp on.
enum class Flow : uint8_t {
  kNext,     ///< each lane by itself
  kBranch,   ///< to Instruction::target
  kExit,     ///< ends the lanes
  kBarrier,  ///< waits for all warps of the block
  kAligned,  ///< waits for all lanes of the warp
  kMasked,   ///< waits for the lanes in the mask that is the last operand
};

struct Instruction {
  Handler run = nullptr;
  const Slot* operands = nullptr;
  Slot predicate = 0;   ///< if is_predicated
  uint32_t target = 0;  ///< of a branch: index into Kernel::code
  int64_t offset = 0;   ///< added to the address operand
  uint32_t line = 0;    ///< of the module's PTX text, from 1
  Flow flow = Flow::kNext;
  bool is_predicated = false;
  bool is_negated = false;         ///< runs where the predicate is false
  bool has_short_address = false;  ///< the address operand is a word
  uint8_t operand_count = 0;
  std::string_view text;  ///< as written in the PTX
};

/// A kernel's parameter.
struct Parameter {
  uint32_t offset = 0, bytes = 0;
};

/// Registers that exist from the start of a block.
enum class Special : uint8_t { kTid, kNtid, kCtaid, kNctaid, kLaneId };
struct SpecialRegister {
  Slot slot = 0;
  Special what = Special::kTid;
  int axis = 0;  ///< 0 to 2: x, y, z
};
struct Constant {
  Slot slot = 0;
  Kind kind = Kind::kWord;
  uint64_t value = 0;
};

/// Addresses of shared memory start here, so that a null pointer is out of bounds. Not a multiple
/// of more than 16 bytes: a driver promises no more for the dynamic part.
constexpr uint32_t kSharedBase = 1024 + 16;

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<Slot> operands;  ///< what Instruction::operands points into
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t shared_bytes = 0;  ///< declared in the kernel
  uint32_t dynamic_base = kSharedBase;
  uint32_t local_bytes = 0;   ///< of each thread
  uint32_t most_threads = 0;  ///< .maxntid; 0: not limited
  std::vector<SpecialRegister> specials;
  std::vector<Constant> constants;
  /// Registers are the first register_bytes of the file, constants and special registers follow.
  uint32_t register_bytes = 0, file_bytes = 0;
};

}  // namespace kvcal::ptx
