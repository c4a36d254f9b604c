#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "datasets/text_file.h"

namespace kvcal {

/// Unpacks gzip or zstd data piece by piece through a bounded buffer. write gets each piece, and
/// how many packed bytes it took up to its end, and says whether it wants more. Throws Error for
/// damaged data, data that ends early, and data behind its end that is neither another member nor
/// padding, naming the byte of the packed data and how much had been unpacked.
void unpack(Packing packing, std::span<const std::byte> packed,
            const std::function<bool(std::string_view piece, uint64_t read)>& write);

}  // namespace kvcal
