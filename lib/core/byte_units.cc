#include "core/byte_units.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "core/text.h"

namespace kvcal {

std::string byte_text_beside(uint64_t limit, uint64_t bytes) {
  constexpr const char* kUnits[][2] = {
      {"B", "B"}, {"kB", "KiB"}, {"MB", "MiB"}, {"GB", "GiB"}, {"TB", "TiB"}};
  const bool is_binary = limit % 1024 == 0 && limit % 1000 != 0;
  const double step = is_binary ? 1024.0 : 1000.0;
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= step && unit + 1 < std::size(kUnits); ++unit) value /= step;
  // Of four digits the last is rounded up: a limit of what is told suffices. The division's own
  // rounding is no reason for it.
  double places = 1;
  for (; value * places < 1000 && places < 1000; places *= 10) {
  }
  value = std::ceil(value * places - 1e-6) / places;
  return fixed("%.4g ", value) + kUnits[unit][is_binary ? 1 : 0];
}

}  // namespace kvcal
