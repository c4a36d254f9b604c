#include "stored/integer_matrix.h"

#include <algorithm>
#include <cstring>

#include "quant/packed_bits.h"
#include "quant/weight_scales.h"
#include "stored/coded_matrix.h"

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

namespace {

/// Whether g_idx says what contiguous groups say.
bool is_in_order(const ColumnGroups& groups, int64_t width) {
  for (int64_t column = 0; groups.index && column < width; ++column)
    if (int32_at(*groups.index, column) != column / groups.group) return false;
  return true;
}

}  // namespace

bool IntegerMatrix::has_middle_zeros() const {
  std::vector<int32_t> zeros(static_cast<size_t>(groups_.groups));
  for (int64_t row = 0; row < rows(); ++row) {
    read_zeros(row, 1, zeros.data());
    if (std::ranges::any_of(zeros, [&](int32_t zero) { return zero != 1 << (bits() - 1); }))
      return false;
  }
  return true;
}

TensorSource IntegerMatrix::codes_source(std::string name, const RowChoice& rows) const {
  const PackedBits packed{.bits = bits(), .crosses_words = true};
  const int64_t words = packed.words_of(width());
  return rows_source(std::move(name), DType::kI32, {rows.count, words},
                     [this, packed, words, rows](int64_t begin, int64_t count, std::byte* out) {
                       // Layouts that store columns read some rows in one pass.
                       constexpr int64_t kTile = 16;
                       const auto row_codes = static_cast<size_t>(width());
                       std::vector<uint8_t> codes(kTile * row_codes);
                       for (int64_t done = 0; done < count;) {
                         const int64_t tile = rows.step == 1 ? std::min(kTile, count - done) : 1;
                         read_block({rows.at(begin + done), tile, 0, width()}, codes.data());
                         for (int64_t row = 0; row < tile; ++row, ++done)
                           packed.pack(
                               {codes.data() + static_cast<size_t>(row) * row_codes, row_codes},
                               out + done * words * 4);
                       }
                     });
}

TensorSource IntegerMatrix::scales_source(std::string name, const RowChoice& rows) const {
  const DType dtype = scales_[0].dtype;
  const auto size = static_cast<size_t>(bits_of_dtype(dtype) / 8);
  return rows_source(std::move(name), dtype, {rows.count, groups_.groups},
                     [this, dtype, size, rows](int64_t begin, int64_t count, std::byte* out) {
                       std::vector<float> scales(static_cast<size_t>(groups_.groups));
                       for (int64_t row = 0; row < count; ++row) {
                         read_scales(rows.at(begin + row), 1, scales.data());
                         for (const float scale : scales) {
                           const uint32_t bits = bits_in(dtype, scale);
                           std::memcpy(out, &bits, size);
                           out += size;
                         }
                       }
                     });
}

/// Zero points are packed along the rows: a word holds those of several rows.
TensorSource IntegerMatrix::zeros_source(std::string name, const RowChoice& rows) const {
  const PackedBits packed{.bits = bits(), .crosses_words = true};
  return rows_source(std::move(name), DType::kI32, {packed.words_of(rows.count), groups_.groups},
                     [this, packed, rows](int64_t begin, int64_t count, std::byte* out) {
                       std::vector<int32_t> zeros(static_cast<size_t>(groups_.groups));
                       std::vector<uint8_t> codes;
                       for (int64_t row = 0; row < rows.count; ++row) {
                         read_zeros(rows.at(row), 1, zeros.data());
                         for (const int32_t zero : zeros)
                           codes.push_back(static_cast<uint8_t>(zero));
                       }
                       const auto words = packed.pack_columns(codes, groups_.groups);
                       std::copy_n(words.begin() + begin * groups_.groups * 4,
                                   count * groups_.groups * 4, out);
                     });
}

QuantArgs IntegerMatrix::packed_args() const {
  for (const TensorView& tensor : scales_)
    if (tensor.is_hollow()) throw HollowTensor(tensor.name);
  QuantArgs args;
  args.num_bits = bits();
  args.symmetric = has_middle_zeros();
  args.strategy = groups_.groups == 1 ? Strategy::kChannel : Strategy::kGroup;
  if (groups_.groups > 1) args.group_size = groups_.group;
  if (!is_in_order(groups_, width())) args.actorder = "group";
  return args;
}

std::vector<TensorSource> IntegerMatrix::packed_tensors(const std::string& module,
                                                        const QuantArgs& args,
                                                        const RowChoice& rows) const {
  std::vector<TensorSource> tensors;
  tensors.push_back(codes_source(module + ".weight_packed", rows));
  tensors.push_back(scales_source(module + ".weight_scale", rows));
  tensors.push_back(shape_source(module + ".weight_shape", {rows.count, width()}));
  if (!args.symmetric) tensors.push_back(zeros_source(module + ".weight_zero_point", rows));
  if (args.actorder) {
    const TensorView& index = *groups_.index;
    tensors.push_back(small_source(module + ".weight_g_idx", DType::kI32, index.shape,
                                   {index.bytes.begin(), index.bytes.end()}));
  }
  return tensors;
}

}  // namespace kvcal
