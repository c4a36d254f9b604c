#include "stored/integer_matrix.h"

#include <algorithm>

namespace kvcal {

void check_index(const ColumnGroups& groups) {
  if (!groups.index) return;
  const auto width = static_cast<int64_t>(element_count(groups.index->shape));
  for (int64_t column = 0; column < width; ++column) {
    const int32_t group = int32_at(*groups.index, column);
    if (group < 0 || group >= groups.groups)
      fail("unreadable: ", groups.index->name, " holds ", group, ", expected groups 0 to ",
           groups.groups - 1);
  }
}

void IntegerMatrix::decode(int64_t first, int64_t count, float* out) const {
  // Rows in tiles, whose codes stay in the cache.
  constexpr int64_t kTile = 16;
  const int64_t width = this->width(), groups = groups_.groups;
  const auto tile_elements = static_cast<size_t>(kTile * width);
  std::vector<uint8_t> codes(tile_elements);
  std::vector<int32_t> zeros(static_cast<size_t>(kTile * groups));
  std::vector<float> scales(zeros.size());
  for (int64_t done = 0; done < count; done += kTile) {
    const int64_t tile = std::min(kTile, count - done);
    read_codes(first + done, tile, codes.data());
    read_zeros(first + done, tile, zeros.data());
    read_scales(first + done, tile, scales.data());
    for (int64_t row = 0; row < tile; ++row) {
      const uint8_t* const code = codes.data() + row * width;
      const int32_t* const zero = zeros.data() + row * groups;
      const float* const scale = scales.data() + row * groups;
      float* const to = out + (done + row) * width;
      const auto value = [&](int64_t column, int64_t group) {
        to[column] = static_cast<float>(code[column] - zero[group]) * scale[group];
      };
      if (groups_.index) {
        for (int64_t column = 0; column < width; ++column)
          value(column, int32_at(*groups_.index, column));
        continue;
      }
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t begin = group * groups_.group;
        const int64_t end = group + 1 == groups ? width : begin + groups_.group;
        for (int64_t column = begin; column < end; ++column) value(column, group);
      }
    }
  }
}

}  // namespace kvcal
