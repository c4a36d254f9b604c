// Loads and stores, also of vectors.
#include "addresses.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// A loaded value as its register holds it: values of 8 and 16 bits are extended to a word.
template <class T>
void put(const Warp& warp, Slot slot, int lane, T value) {
  if constexpr (sizeof(T) == 8)
    warp.longs(slot)[lane] = value;
  else
    warp.words(slot)[lane] = static_cast<uint32_t>(value);
}
template <class T>
T get(const Warp& warp, Slot slot, int lane) {
  if constexpr (sizeof(T) == 8)
    return warp.longs(slot)[lane];
  else
    return static_cast<T>(warp.words(slot)[lane]);
}

template <class T, int kCount, Space kSpace>
void load(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  constexpr Access kAccess{sizeof(T) * kCount, false};
  const Slot* const operands = instruction.operands;
  for_lanes(lanes, [&](int lane) {
    const uint64_t address = address_of(warp, instruction, operands[kCount], lane);
    T values[kCount];
    std::memcpy(values, bytes_at<kSpace>(warp, instruction, address, kAccess, lane), sizeof values);
    for (int i = 0; i < kCount; ++i) put<T>(warp, operands[i], lane, values[i]);
  });
}

template <class T, int kCount, Space kSpace>
void store(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  constexpr Access kAccess{sizeof(T) * kCount, true};
  const Slot* const operands = instruction.operands;
  for_lanes(lanes, [&](int lane) {
    const uint64_t address = address_of(warp, instruction, operands[0], lane);
    T values[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = get<T>(warp, operands[1 + i], lane);
    std::memcpy(bytes_at<kSpace>(warp, instruction, address, kAccess, lane), values, sizeof values);
  });
}

/// How a kernel may write an access; none of it matters to an interpreter, which has no caches.
struct Spelling {
  std::string before, after;  ///< the space
};
const Spelling kSpellings[] = {{"", ""},    {".volatile", ""}, {".relaxed.gpu", ""},
                               {"", ".nc"}, {"", ".ca"},       {"", ".cg"}};

template <class T, int kCount, Space kSpace>
void add_access(Opcodes& opcodes, const std::string& space, const std::string& type) {
  const std::string vector = kCount == 1 ? "" : ".v" + std::to_string(kCount);
  for (const auto& [before, after] : kSpellings) {
    const std::string name = before + space + after + vector + "." + type;
    opcodes.add("ld" + name, &load<T, kCount, kSpace>,
                std::string(kCount, result_letter_of<T>) + "@");
    if constexpr (kSpace != Space::kParameter)
      opcodes.add("st" + name, &store<T, kCount, kSpace>, "@" + std::string(kCount, letter_of<T>));
  }
}
template <class T, Space kSpace>
void add_counts(Opcodes& opcodes, const std::string& space, const std::string& type) {
  add_access<T, 1, kSpace>(opcodes, space, type);
  add_access<T, 2, kSpace>(opcodes, space, type);
  if constexpr (sizeof(T) <= 4) add_access<T, 4, kSpace>(opcodes, space, type);
}
template <Space kSpace>
void add_types(Opcodes& opcodes, const std::string& space) {
  add_counts<int8_t, kSpace>(opcodes, space, "s8");
  add_counts<int16_t, kSpace>(opcodes, space, "s16");
  for (const std::string type : {"b8", "u8"}) add_counts<uint8_t, kSpace>(opcodes, space, type);
  for (const std::string type : {"b16", "u16"}) add_counts<uint16_t, kSpace>(opcodes, space, type);
  for (const std::string type : {"b32", "u32", "s32", "f32"})
    add_counts<uint32_t, kSpace>(opcodes, space, type);
  for (const std::string type : {"b64", "u64", "s64", "f64"})
    add_counts<uint64_t, kSpace>(opcodes, space, type);
}

}  // namespace

void add_memory_opcodes(Opcodes& opcodes) {
  add_types<Space::kGlobal>(opcodes, ".global");
  add_types<Space::kGlobal>(opcodes, ".const");
  add_types<Space::kShared>(opcodes, ".shared");
  add_types<Space::kLocal>(opcodes, ".local");
  add_types<Space::kParameter>(opcodes, ".param");
  add_types<Space::kGeneric>(opcodes, "");
}

}  // namespace kvcal::ptx
