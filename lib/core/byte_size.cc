#include "core/byte_size.h"

#include <charconv>

#include "core/checked.h"
#include "core/registry.h"
#include "core/shown_name.h"

namespace kvcal {

uint64_t parse_byte_size(const std::string& text) {
  static const Registry<uint64_t> kUnits{"unit",
                                         {{"", 1},
                                          {"B", 1},
                                          {"KB", 1000},
                                          {"MB", 1000000},
                                          {"GB", 1000000000},
                                          {"KiB", uint64_t{1} << 10},
                                          {"MiB", uint64_t{1} << 20},
                                          {"GiB", uint64_t{1} << 30},
                                          {"TiB", uint64_t{1} << 40}}};
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const uint64_t* unit = kUnits.find(std::string(end, text.data() + text.size()));
  if (error != std::errc() || end == text.data() || !unit)
    fail(shown_name(text), " is no size, expected a whole number and a unit like 8GiB",
         did_you_mean(end, kUnits.names()));
  return checked_mul(number, *unit);
}

}  // namespace kvcal
