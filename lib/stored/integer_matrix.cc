#include "stored/integer_matrix.h"

#include <algorithm>
#include <cstring>

namespace kvcal {

void check_index(const ColumnGroups& groups) {
  if (!groups.index || groups.index->is_hollow()) return;
  const auto width = static_cast<int64_t>(element_count(groups.index->shape));
  for (int64_t column = 0; column < width; ++column) {
    const int32_t group = int32_at(*groups.index, column);
    if (group < 0 || group >= groups.groups)
      fail("unreadable: ", groups.index->name, " holds ", group, ", expected groups 0 to ",
           groups.groups - 1);
  }
}

namespace {

/// out[i] = (codes[i] - zero) × scale.
void scale_codes(const uint8_t* __restrict codes, int64_t count, float zero, float scale,
                 float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(codes[i]) - zero) * scale;
}

/// As scale_codes, with the zero point and scale of each column's group.
void scale_by_index(const uint8_t* __restrict codes, std::span<const int32_t> index,
                    const int32_t* zeros, const float* scales, float* __restrict out) {
  for (size_t i = 0; i < index.size(); ++i) {
    const auto group = static_cast<size_t>(index[i]);
    out[i] = static_cast<float>(codes[i] - zeros[group]) * scales[group];
  }
}

std::vector<int32_t> values_of(const std::optional<TensorView>& index) {
  if (!index) return {};
  std::vector<int32_t> values(element_count(index->shape));
  std::memcpy(values.data(), index->bytes.data(), values.size() * sizeof(int32_t));
  return values;
}

}  // namespace

void IntegerMatrix::decode(int64_t first, int64_t count, float* out) const {
  // Blocks whose codes stay in the cache. Their rows fill most of a line where the file holds
  // columns.
  constexpr int64_t kTile = 64;
  const int64_t groups = groups_.groups, most = std::min(kTile, count);
  const std::vector<int32_t> index = values_of(groups_.index);
  std::vector<uint8_t> codes(static_cast<size_t>(most * std::min(kBlockColumns, width())));
  std::vector<int32_t> zeros(static_cast<size_t>(most * groups));
  std::vector<float> scales(zeros.size());
  for (int64_t done = 0; done < count; done += kTile) {
    const int64_t tile = std::min(kTile, count - done);
    read_zeros(first + done, tile, zeros.data());
    read_scales(first + done, tile, scales.data());
    for (int64_t column = 0; column < width(); column += kBlockColumns) {
      const Block block{first + done, tile, column, std::min(kBlockColumns, width() - column)};
      read_block(block, codes.data());
      for (int64_t row = 0; row < tile; ++row)
        scale_row(block, codes.data() + row * block.columns, zeros.data() + row * groups,
                  scales.data() + row * groups, index, out + (done + row) * width() + column);
    }
  }
}

void IntegerMatrix::scale_row(const Block& block, const uint8_t* codes, const int32_t* zeros,
                              const float* scales, std::span<const int32_t> index,
                              float* out) const {
  if (!index.empty()) {
    const auto columns =
        index.subspan(static_cast<size_t>(block.column), static_cast<size_t>(block.columns));
    scale_by_index(codes, columns, zeros, scales, out);
    return;
  }
  for (int64_t done = 0; done < block.columns;) {
    const int64_t column = block.column + done;
    const int64_t group = std::min(column / groups_.group, groups_.groups - 1);
    const int64_t group_end = group + 1 == groups_.groups ? width() : (group + 1) * groups_.group;
    const int64_t here = std::min(group_end - column, block.columns - done);
    scale_codes(codes + done, here, static_cast<float>(zeros[group]), scales[group], out + done);
    done += here;
  }
}

}  // namespace kvcal
