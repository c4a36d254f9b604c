#include "stored/packed_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "quant/packed_bits.h"
#include "quant/weight_scales.h"
#include "stored/integer_matrix.h"

namespace kvcal {
namespace {

using Fill = std::function<void(int64_t begin, int64_t count, std::byte* out)>;

/// Fills a range of bytes that may begin and end within rows.
void fill_range(const Fill& fill, uint64_t row_bytes, uint64_t offset, std::span<std::byte> bytes) {
  std::vector<std::byte> part;
  while (!bytes.empty()) {
    const auto row = static_cast<int64_t>(offset / row_bytes);
    const uint64_t skipped = offset % row_bytes, whole = bytes.size() / row_bytes;
    uint64_t made = whole * row_bytes;
    if (skipped == 0 && whole > 0) {
      fill(row, static_cast<int64_t>(whole), bytes.data());
    } else {
      part.resize(row_bytes);
      fill(row, 1, part.data());
      made = std::min<uint64_t>(row_bytes - skipped, bytes.size());
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(skipped), made, bytes.begin());
    }
    offset += made;
    bytes = bytes.subspan(made);
  }
}

/// Bytes of a small tensor, which the source owns.
TensorSource small_source(std::string name, DType dtype, Shape shape, std::vector<std::byte> all) {
  const size_t row_bytes = all.size() / static_cast<size_t>(shape[0]);
  return rows_source(
      std::move(name), dtype, std::move(shape),
      [all = std::move(all), row_bytes](int64_t begin, int64_t count, std::byte* out) {
        std::copy_n(all.begin() + begin * static_cast<int64_t>(row_bytes),
                    static_cast<size_t>(count) * row_bytes, out);
      });
}

PackedBits bits_of(const QuantArgs& args) {
  return {.bits = args.num_bits, .crosses_words = true};
}

TensorSource codes_source(const IntegerMatrix& matrix, const QuantArgs& args, std::string name,
                          const RowChoice& rows) {
  const PackedBits bits = bits_of(args);
  const int64_t words = bits.words_of(matrix.width());
  return rows_source(std::move(name), DType::kI32, {rows.count, words},
                     [&matrix, bits, words, rows](int64_t begin, int64_t count, std::byte* out) {
                       // Layouts that store columns read some rows in one pass.
                       constexpr int64_t kTile = 16;
                       const auto width = static_cast<size_t>(matrix.width());
                       std::vector<uint8_t> codes(kTile * width);
                       for (int64_t done = 0; done < count;) {
                         const int64_t tile = rows.step == 1 ? std::min(kTile, count - done) : 1;
                         matrix.read_codes(rows.at(begin + done), tile, codes.data());
                         for (int64_t row = 0; row < tile; ++row, ++done)
                           bits.pack({codes.data() + static_cast<size_t>(row) * width, width},
                                     out + done * words * 4);
                       }
                     });
}

TensorSource scales_source(const IntegerMatrix& matrix, std::string name, const RowChoice& rows) {
  const int64_t groups = matrix.groups().groups;
  const DType dtype = matrix.scales()[0].dtype;
  const auto size = static_cast<int64_t>(bits_of_dtype(dtype) / 8);
  return rows_source(
      std::move(name), dtype, {rows.count, groups},
      [&matrix, groups, dtype, size, rows](int64_t begin, int64_t count, std::byte* out) {
        std::vector<float> scales(static_cast<size_t>(groups));
        for (int64_t row = 0; row < count; ++row) {
          matrix.read_scales(rows.at(begin + row), 1, scales.data());
          for (const float scale : scales) {
            const uint32_t bits = bits_in(dtype, scale);
            std::memcpy(out, &bits, static_cast<size_t>(size));
            out += size;
          }
        }
      });
}

/// Zero points are packed along the rows: a word holds those of several rows.
TensorSource zeros_source(const IntegerMatrix& matrix, const QuantArgs& args, std::string name,
                          const RowChoice& rows) {
  const PackedBits bits = bits_of(args);
  const int64_t groups = matrix.groups().groups, words = bits.words_of(rows.count);
  const auto fill = [&matrix, bits, groups, words, rows](int64_t begin, int64_t count,
                                                         std::byte* out) {
    std::vector<int32_t> zeros(static_cast<size_t>(groups));
    std::vector<uint8_t> columns(static_cast<size_t>(groups * rows.count));
    for (int64_t row = 0; row < rows.count; ++row) {
      matrix.read_zeros(rows.at(row), 1, zeros.data());
      for (int64_t group = 0; group < groups; ++group)
        columns[static_cast<size_t>(group * rows.count + row)] =
            static_cast<uint8_t>(zeros[static_cast<size_t>(group)]);
    }
    std::vector<std::byte> column(static_cast<size_t>(words) * 4);
    for (int64_t group = 0; group < groups; ++group) {
      bits.pack({columns.data() + group * rows.count, static_cast<size_t>(rows.count)},
                column.data());
      for (int64_t word = 0; word < count; ++word)
        std::memcpy(out + (word * groups + group) * 4, column.data() + (begin + word) * 4, 4);
    }
  };
  return rows_source(std::move(name), DType::kI32, {words, groups}, fill);
}

TensorSource index_source(const TensorView& index, std::string name) {
  return small_source(std::move(name), DType::kI32, index.shape,
                      {index.bytes.begin(), index.bytes.end()});
}

/// Whether g_idx says what contiguous groups say.
bool is_in_order(const ColumnGroups& groups, int64_t width) {
  if (!groups.index) return true;
  for (int64_t column = 0; column < width; ++column)
    if (int32_at(*groups.index, column) != column / groups.group) return false;
  return true;
}

bool has_middle_zeros(const IntegerMatrix& matrix) {
  const int32_t middle = 1 << (matrix.bits() - 1);
  std::vector<int32_t> zeros(static_cast<size_t>(matrix.groups().groups));
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    matrix.read_zeros(row, 1, zeros.data());
    if (std::ranges::any_of(zeros, [&](int32_t zero) { return zero != middle; })) return false;
  }
  return true;
}

}  // namespace

TensorSource rows_source(std::string name, DType dtype, Shape shape, Fill fill) {
  const uint64_t row_bytes = byte_count(shape, dtype) / static_cast<uint64_t>(shape[0]);
  return {
      .name = std::move(name),
      .dtype = dtype,
      .shape = std::move(shape),
      .bytes = {},
      .file = {},
      .file_offset = 0,
      .generate = [fill = std::move(fill), row_bytes](uint64_t offset, std::span<std::byte> bytes) {
        fill_range(fill, row_bytes, offset, bytes);
      }};
}

TensorSource chosen_rows(std::string name, DType dtype, const TensorView& tensor,
                         const RowChoice& rows) {
  Shape shape = tensor.shape;
  const auto row_bytes = static_cast<int64_t>(tensor.bytes.size() / static_cast<size_t>(shape[0]));
  shape.dims[0] = rows.count;
  return rows_source(
      std::move(name), dtype, std::move(shape),
      [bytes = tensor.bytes, row_bytes, rows](int64_t begin, int64_t count, std::byte* out) {
        for (int64_t row = 0; row < count; ++row)
          std::copy_n(bytes.data() + rows.at(begin + row) * row_bytes, row_bytes,
                      out + row * row_bytes);
      });
}

TensorSource shape_source(std::string name, const std::array<int64_t, 2>& shape) {
  const auto bytes = std::as_bytes(std::span(shape));
  return small_source(std::move(name), DType::kI64, {2}, {bytes.begin(), bytes.end()});
}

QuantArgs packed_args(const IntegerMatrix& matrix) {
  for (const TensorView& tensor : matrix.scales())
    if (tensor.is_hollow()) throw HollowTensor(tensor.name);
  const ColumnGroups& groups = matrix.groups();
  QuantArgs args;
  args.num_bits = matrix.bits();
  args.symmetric = has_middle_zeros(matrix);
  args.strategy = groups.groups == 1 ? Strategy::kChannel : Strategy::kGroup;
  if (groups.groups > 1) args.group_size = groups.group;
  if (!is_in_order(groups, matrix.width())) args.actorder = "group";
  return args;
}

std::vector<TensorSource> packed_tensors(const IntegerMatrix& matrix, const QuantArgs& args,
                                         const std::string& module, const RowChoice& rows) {
  std::vector<TensorSource> tensors;
  tensors.push_back(codes_source(matrix, args, module + ".weight_packed", rows));
  tensors.push_back(scales_source(matrix, module + ".weight_scale", rows));
  tensors.push_back(shape_source(module + ".weight_shape", {rows.count, matrix.width()}));
  if (!args.symmetric)
    tensors.push_back(zeros_source(matrix, args, module + ".weight_zero_point", rows));
  if (args.actorder)
    tensors.push_back(index_source(*matrix.groups().index, module + ".weight_g_idx"));
  return tensors;
}

}  // namespace kvcal
