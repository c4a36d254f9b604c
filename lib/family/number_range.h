#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/value_range.h"

namespace kvcal {

// Ranges of the numbers of a config.json. Outside of its own a number is a mistake, and arithmetic
// in float32 would hide it as zeros or infinities.

/// Factors, their inverses, and caps.
constexpr NumberRange kFactorRange{.least = 1e-6, .most = 1e6};

/// A key that code reads as a number, alone or in a list, in any object of a config.json.
struct NumberRow {
  std::string_view key;
  NumberRange range;
};
/// All of them; families' own tables (NumberKey) name further ones.
const std::vector<NumberRow>& number_rows();

/// object[name] in the range of key's row, which must exist; nullopt where it is absent or null.
/// name: the key's name in the object, where it is another. Throws Error naming key, value and
/// range.
std::optional<double> number_of(const Json& object, std::string_view key,
                                std::string_view name = {});
/// The same for a key that must be there.
double required_number_of(const Json& object, std::string_view key);
/// list[index] in the range of key's row. name: the list's, where it is another. Throws Error
/// naming the entry.
double number_at(const Json& list, size_t index, std::string_view key, std::string_view name = {});
/// Throws Error for a value of the key that lies outside of range.
void check_number(std::string_view name, double value, const NumberRange& range);

}  // namespace kvcal
