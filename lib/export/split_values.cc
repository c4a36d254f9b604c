#include "export/split_values.h"

#include <algorithm>

namespace kvcal {

TensorSource SplitValues::source() {
  if (copy_.planned->slice.is_contiguous()) {
    TensorSource range = source_of(file_, values_of(*copy_.source, copy_.planned->slice).view);
    range.name = copy_.planned->name;
    return range;
  }
  return {.name = copy_.planned->name,
          .dtype = copy_.source->dtype,
          .shape = copy_.shape,
          .bytes = {},
          .file = {},
          .file_offset = 0,
          .generate = [this](uint64_t offset, std::span<std::byte> bytes) {
            values_.prepare([](const TensorView&) {});
            std::ranges::copy(values_.view().bytes.subspan(offset, bytes.size()), bytes.begin());
            const auto size = static_cast<uint64_t>(bits_of_dtype(copy_.source->dtype) / 8);
            values_.done(offset / size, bytes.size() / size);
          }};
}

}  // namespace kvcal
