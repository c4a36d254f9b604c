#pragma once

namespace kvcal::jinja {

/// A code point with a case mapping of more than one code point, all three as UTF-8.
struct SpecialCasing {
  char32_t code_point;
  const char* upper;
  const char* lower;
  const char* title;
};

/// The entry of code_point, or null. Source: Unicode 14 SpecialCasing.txt, the unconditional
/// mappings.
const SpecialCasing* find_special_casing(char32_t code_point);

}  // namespace kvcal::jinja
