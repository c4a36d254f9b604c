#pragma once

#include <cstdint>
#include <string>

namespace kvcal {

/// Parses "8GiB", "512MiB", "4GB" or "1000000". Throws Error.
uint64_t parse_byte_size(const std::string& text);

}  // namespace kvcal
