"""Writes lib/jinja/special_casing.cc: code points whose case mapping is longer than one code point.

Run with CPython 3.11 (Unicode 14): python3 tests/reference/special_casing.py > lib/jinja/special_casing.cc
"""


def literal(text: str) -> str:
    return '"' + "".join(f"\\{byte:03o}" if byte > 126 else chr(byte) for byte in text.encode()) + '"'


rows = []
for code_point in range(0x110000):
    character = chr(code_point)
    mappings = character.upper(), character.lower(), character.title()
    if any(len(mapping) > 1 for mapping in mappings):
        rows.append(f"    {{0x{code_point:04X}, {', '.join(map(literal, mappings))}}},")

print(
    """#include "jinja/special_casing.h"

#include <algorithm>
#include <array>

namespace kvcal::jinja {
namespace {

// Sorted by code point. Made by tests/reference/special_casing.py.
// clang-format off
constexpr std::array<SpecialCasing, %d> kRows{{
%s
}};
// clang-format on

}  // namespace

const SpecialCasing* find_special_casing(char32_t code_point) {
  if (code_point < kRows.front().code_point) return nullptr;
  const auto* row = std::lower_bound(
      kRows.begin(), kRows.end(), code_point,
      [](const SpecialCasing& candidate, char32_t wanted) { return candidate.code_point < wanted; });
  return row != kRows.end() && row->code_point == code_point ? row : nullptr;
}

}  // namespace kvcal::jinja"""
    % (len(rows), "\n".join(rows))
)
