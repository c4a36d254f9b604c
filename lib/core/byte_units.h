#pragma once

#include <cstdint>
#include <string>

namespace kvcal {

/// Bytes in the kind of units that a limit was given in: "1.5 GiB" beside 2147483648, "1.6 GB"
/// beside 2000000000; never less than they are.
std::string byte_text_beside(uint64_t limit, uint64_t bytes);
/// The limit itself.
inline std::string limit_text(uint64_t limit) {
  return byte_text_beside(limit, limit);
}

}  // namespace kvcal
