#include "backend/row_decoder.h"

#include <algorithm>

namespace kvcal {

void decode_rows(std::span<const DecodedRows> parts, int64_t first, int64_t count, float* out) {
  for (const DecodedRows& part : parts) {
    const int64_t begin = std::min(first, part.count), taken = std::min(count, part.count - begin);
    if (taken > 0) part.decoder->decode(part.first + begin, taken, out);
    out += taken * part.decoder->width();
    first -= begin;
    count -= taken;
  }
}

}  // namespace kvcal
