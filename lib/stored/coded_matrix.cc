#include "stored/coded_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "quant/fp8.h"
#include "quant/half.h"

namespace kvcal {

CodedMatrix::CodedMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales)
    : codes_(std::move(codes)), scales_(std::move(scales)), shape_(std::move(shape)) {
  KVCAL_CHECK(shape_.rank() == 2);
}

uint64_t CodedMatrix::stored_bytes() const {
  uint64_t bytes = codes_.bytes.size();
  for (const TensorView& scale : scales_) bytes += scale.bytes.size();
  return bytes;
}

QuantArgs CodedMatrix::packed_args() const {
  KVCAL_CHECK(false);
  return {};
}

std::vector<TensorSource> CodedMatrix::packed_tensors(const std::string&, const QuantArgs&,
                                                      const RowChoice&) const {
  KVCAL_CHECK(false);
  return {};
}

float scale_at(const TensorView& scales, int64_t index) {
  float value = 0;
  scales_at(scales, index, {&value, 1});
  return value;
}

int32_t int32_at(const TensorView& tensor, int64_t index) {
  int32_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * static_cast<size_t>(index), sizeof(value));
  return value;
}

void scales_at(const TensorView& scales, int64_t first, std::span<float> values) {
  if (scales.is_hollow()) throw HollowTensor(scales.name);
  // One switch for each dtype, not one for each value.
  const std::byte* const bytes = scales.bytes.data();
  const auto read = [&]<class Bits>(Bits, const auto& value_of) {
    for (size_t i = 0; i < values.size(); ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + (static_cast<size_t>(first) + i) * sizeof(bits), sizeof(bits));
      values[i] = value_of(bits);
    }
  };
  switch (scales.dtype) {
    case DType::kF32:
      return read(float(), [](float value) { return value; });
    case DType::kF16:
      return read(uint16_t(), [](uint16_t bits) { return to_float(F16{bits}); });
    case DType::kBF16:
      return read(uint16_t(), [](uint16_t bits) { return to_float(BF16{bits}); });
    case DType::kF8E4M3:
      return read(uint8_t(), [](uint8_t code) { return fp8::kE4m3Values[code]; });
    default:
      read(uint8_t(), [](uint8_t code) { return e8m0::decode(code); });
  }
}

namespace {

/// Whether the bits of every scale, as an unsigned integer, are in [least, end).
template <class Bits>
bool all_between(std::span<const std::byte> bytes, Bits least, Bits end) {
  const auto width = static_cast<Bits>(end - least);
  Bits outside = 0;  // without a branch, so that the compiler vectorizes the loop
  for (size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    outside |= static_cast<Bits>(static_cast<Bits>(bits - least) >= width ? 1 : 0);
  }
  return outside == 0;
}

/// Whether every scale is positive and finite.
bool are_scales(const TensorView& scales) {
  switch (scales.dtype) {
    case DType::kF32:
      return all_between<uint32_t>(scales.bytes, 1, 0x7f800000u);
    case DType::kF16:
      return all_between<uint16_t>(scales.bytes, 1, 0x7c00u);
    case DType::kBF16:
      return all_between<uint16_t>(scales.bytes, 1, 0x7f80u);
    case DType::kF8E4M3:
      return all_between<uint8_t>(scales.bytes, 1, 0x7fu);
    default:
      return all_between<uint8_t>(scales.bytes, 0, e8m0::kNan);
  }
}

}  // namespace

void check_scales(const TensorView& scales) {
  if (scales.is_hollow() || are_scales(scales)) return;
  const auto count = static_cast<int64_t>(element_count(scales.shape));
  for (int64_t i = 0; i < count; ++i) {
    const float value = scale_at(scales, i);
    if (!std::isfinite(value) || value <= 0.0f)
      fail("unreadable: ", scales.name, " holds ", value, ", expected finite positive scales");
  }
}

namespace {

/// Dimensions without the ones at the end.
std::vector<int64_t> trimmed(std::vector<int64_t> dims) {
  while (!dims.empty() && dims.back() == 1) dims.pop_back();
  return dims;
}

std::string names_of(std::initializer_list<DType> dtypes) {
  std::ostringstream text;
  size_t at = 0;
  for (const DType dtype : dtypes)
    text << (at++ == 0 ? "" : at == dtypes.size() ? " or " : ", ") << dtype;
  return text.str();
}

}  // namespace

bool ModuleTensors::has(std::string_view end) const {
  return model_dir_.find(module_ + std::string(end)) != nullptr;
}

const TensorView* ModuleTensors::find(std::string_view end, std::initializer_list<DType> dtypes) {
  const std::string name = module_ + std::string(end);
  const TensorView* tensor = model_dir_.find(name);
  if (!tensor) return nullptr;
  read_.insert(name);
  if (std::ranges::find(dtypes, tensor->dtype) == dtypes.end())
    fail("unreadable: ", name, " is ", tensor->dtype, ", expected ", names_of(dtypes));
  return tensor;
}

const TensorView& ModuleTensors::need(std::string_view end, std::initializer_list<DType> dtypes,
                                      size_t rank) {
  const TensorView* tensor = find(end, dtypes);
  if (!tensor) fail("missing: ", module_, end, " of the quantized weight");
  if (tensor->shape.rank() != rank || element_count(tensor->shape) == 0)
    fail("misshapen: ", tensor->name, " is ", tensor->shape, ", expected ",
         counted(rank, "dimension"));
  return *tensor;
}

const TensorView& ModuleTensors::need(std::string_view end, std::initializer_list<DType> dtypes,
                                      const Shape& shape) {
  const TensorView* tensor = find(end, dtypes);
  if (!tensor) fail("missing: ", module_, end, " ", shape, " of the quantized weight");
  if (trimmed(tensor->shape.dims) != trimmed(shape.dims)) fail_shape(*tensor, shape);
  return *tensor;
}

void ModuleTensors::pass(std::string_view end) {
  const std::string name = module_ + std::string(end);
  if (model_dir_.find(name)) read_.insert(name);
}

void fail_shape(const TensorView& tensor, const Shape& expected) {
  fail("misshapen: ", tensor.name, " is ", tensor.shape, ", expected ", expected);
}

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

TensorSource small_source(std::string name, DType dtype, Shape shape, std::vector<std::byte> all) {
  const size_t row_bytes = all.size() / static_cast<size_t>(shape[0]);
  return rows_source(
      std::move(name), dtype, std::move(shape),
      [all = std::move(all), row_bytes](int64_t begin, int64_t count, std::byte* out) {
        std::copy_n(all.begin() + begin * static_cast<int64_t>(row_bytes),
                    static_cast<size_t>(count) * row_bytes, out);
      });
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

}  // namespace kvcal
