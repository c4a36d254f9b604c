#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/json.h"
#include "stored/coded_matrix.h"

namespace kvcal {
namespace {

constexpr std::string_view kWeightCodes = ".weight";
constexpr std::array<std::string_view, 2> kStates{".weight.quant_state.bitsandbytes__nf4",
                                                  ".weight.quant_state.bitsandbytes__fp4"};

/// Numbers of bitsandbytes' quant_state. Source: bitsandbytes 0.50 `QuantState.as_dict`.
struct QuantState {
  Shape shape;
  int64_t block = 0, nested_block = 0;  ///< codes, and blocks, that share a scale
  float nested_offset = 0;
};

int64_t power_of_two(const Json& json, std::string_view key) {
  const int64_t value = required_int(json, key);
  if (value < 2 || value > 65536 || (value & (value - 1)) != 0)
    fail("key '", key, "' is ", value, ", expected a power of two");
  return value;
}

QuantState parse_state(const TensorView& tensor) {
  return in_context(std::string(tensor.name), [&] {
    const std::string text(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    const Json json = parse_model_json(text);
    if (!json.is_object()) fail("is ", kind_of(json), ", expected an object");
    const Json* shape = find_field(json, "shape");
    if (!shape || !shape->is_array() || shape->size() != 2 || !shape->at(0).is_number_integer() ||
        !shape->at(1).is_number_integer())
      fail("key 'shape' is ", shape ? shape->dump() : "absent", ", expected two sizes");
    QuantState state{.shape = {shape->at(0).get<int64_t>(), shape->at(1).get<int64_t>()},
                     .block = power_of_two(json, "blocksize")};
    constexpr int64_t kMost = int64_t{1} << 30;
    for (const int64_t side : state.shape.dims)
      if (side < 1 || side > kMost) fail("key 'shape' is ", shape->dump(), ", expected two sizes");
    if (find_field(json, "nested_blocksize")) {
      state.nested_block = power_of_two(json, "nested_blocksize");
      const Json* offset = find_field(json, "nested_offset");
      if (!offset || !offset->is_number()) fail_missing("nested_offset", "a number");
      state.nested_offset = offset->get<float>();
    }
    return state;
  });
}

/// Codes of 4 bits, the first in the high half, with a scale for each block of the flat matrix. The
/// scales may be codes themselves.
class Bitsandbytes4bit : public CodedMatrix {
 public:
  /// scales: absmax, quant_map, and of nested states nested_absmax, nested_quant_map.
  Bitsandbytes4bit(const QuantState& state, TensorView codes, std::vector<TensorView> scales)
      : CodedMatrix(state.shape, std::move(codes), std::move(scales)), state_(state) {
    for (size_t i = 0; i < map_.size() && !scales_[1].is_hollow(); ++i)
      map_[i] = scale_at(scales_[1], static_cast<int64_t>(i));
  }

  void decode(int64_t first, int64_t count, float* out) const override {
    int64_t at = first * width();
    const int64_t end = at + count * width();
    while (at < end) {
      const int64_t block = at / state_.block;
      const int64_t here = std::min(end, (block + 1) * state_.block) - at;
      decode_block(at, here, scale_of(block), out);
      at += here;
      out += here;
    }
  }

  std::string packing_problem() const override {
    return "compressed-tensors has no such codes: their 16 values (quant_map) are not evenly "
           "spaced";
  }

 private:
  /// Decodes elements [at, at + count) of one block, whose 16 values are known.
  void decode_block(int64_t at, int64_t count, float scale, float* out) const {
    std::array<float, 16> values;
    for (size_t code = 0; code < values.size(); ++code) values[code] = map_[code] * scale;
    const std::byte* const codes = codes_.bytes.data();
    const auto value = [&](int64_t index) {
      const auto pair = static_cast<uint8_t>(codes[index / 2]);
      return values[index % 2 == 0 ? pair >> 4 : pair & 15];
    };
    int64_t done = 0;
    if (at % 2 == 1 && count > 0) out[done++] = value(at);
    for (; done + 2 <= count; done += 2) {
      const auto pair = static_cast<uint8_t>(codes[(at + done) / 2]);
      out[done] = values[pair >> 4];
      out[done + 1] = values[pair & 15u];
    }
    if (done < count) out[done] = value(at + done);
  }

  float scale_of(int64_t block) const {
    if (state_.nested_block == 0) return scale_at(scales_[0], block);
    const auto code = static_cast<uint8_t>(scales_[0].bytes[static_cast<size_t>(block)]);
    const float product =
        scale_at(scales_[3], code) * scale_at(scales_[2], block / state_.nested_block);
    return product + state_.nested_offset;
  }

  QuantState state_;
  std::array<float, 16> map_{};
};

void check_finite(const TensorView& values) {
  if (values.is_hollow()) return;
  for (int64_t i = 0; i < static_cast<int64_t>(element_count(values.shape)); ++i)
    if (!std::isfinite(scale_at(values, i)))
      fail("unreadable: ", values.name, " holds ", scale_at(values, i),
           ", expected finite numbers");
}

std::unique_ptr<CodedMatrix> open_4bit(ModuleTensors& tensors) {
  const TensorView* written = nullptr;
  for (const std::string_view name : kStates)
    if (tensors.has(name)) written = &tensors.need(name, {DType::kU8}, 1);
  if (!written) fail("missing: ", tensors.module(), kStates[0], " of the quantized weight");
  const QuantState state = parse_state(*written);
  const auto elements = static_cast<int64_t>(element_count(state.shape));
  const int64_t blocks = divided_up(elements, state.block);
  const TensorView& codes = tensors.need(kWeightCodes, {DType::kU8}, Shape{(elements + 1) / 2, 1});
  std::vector<TensorView> scales;
  const bool is_nested = state.nested_block > 0;
  scales.push_back(is_nested ? tensors.need(".weight.absmax", {DType::kU8}, Shape{blocks})
                             : tensors.need(".weight.absmax", {DType::kF32}, Shape{blocks}));
  scales.push_back(tensors.need(".weight.quant_map", {DType::kF32}, Shape{16}));
  check_finite(scales[1]);
  if (is_nested) {
    const int64_t groups = divided_up(blocks, state.nested_block);
    scales.push_back(tensors.need(".weight.nested_absmax", {DType::kF32}, Shape{groups}));
    scales.push_back(tensors.need(".weight.nested_quant_map", {DType::kF32}, Shape{256}));
    check_finite(scales[3]);
  }
  // A block of zeros has scale 0.
  check_finite(scales[is_nested ? 2 : 0]);
  return std::make_unique<Bitsandbytes4bit>(state, codes, std::move(scales));
}

/// I8 rows; SCB holds the largest magnitude of each.
class Bitsandbytes8bit : public CodedMatrix {
 public:
  using CodedMatrix::CodedMatrix;

  void decode(int64_t first, int64_t count, float* out) const override {
    constexpr float kInverse = 1.0f / 127.0f;
    for (int64_t row = first; row < first + count; ++row) {
      const float scale = scale_at(scales_[0], row);
      const std::byte* const codes = codes_.bytes.data() + row * width();
      for (int64_t column = 0; column < width(); ++column)
        *out++ = static_cast<float>(static_cast<int8_t>(codes[column])) * scale * kInverse;
    }
  }

  std::string packing_problem() const override { return ""; }

  QuantArgs packed_args() const override {
    QuantArgs args;
    args.strategy = Strategy::kChannel;
    return args;
  }

  /// Pack-quantized: codes + 128. A value is code × (SCB / 127) there and (code × SCB) / 127 here,
  /// which differ by rounding alone.
  std::vector<TensorSource> packed_tensors(const std::string& module, const QuantArgs&,
                                           const RowChoice& rows) const override {
    const int64_t width = this->width(), row_bytes = (width + 3) / 4 * 4;
    const auto codes = [this, width, row_bytes, rows](int64_t begin, int64_t count,
                                                      std::byte* out) {
      std::fill_n(out, count * row_bytes, std::byte{0});
      for (int64_t row = 0; row < count; ++row, out += row_bytes)
        std::transform(codes_.bytes.data() + rows.at(begin + row) * width,
                       codes_.bytes.data() + (rows.at(begin + row) + 1) * width, out,
                       [](std::byte code) { return code ^ std::byte{0x80}; });
    };
    const auto scales = [this, rows](int64_t begin, int64_t count, std::byte* out) {
      for (int64_t row = 0; row < count; ++row, out += sizeof(float)) {
        // A row of zeros has magnitude 0, and readers take no such scale.
        const float largest = scale_at(scales_[0], rows.at(begin + row));
        const float scale = largest > 0 ? largest * (1.0f / 127.0f) : 1.0f;
        std::memcpy(out, &scale, sizeof(scale));
      }
    };
    return {rows_source(module + ".weight_packed", DType::kI32, {rows.count, row_bytes / 4}, codes),
            rows_source(module + ".weight_scale", DType::kF32, {rows.count, 1}, scales),
            shape_source(module + ".weight_shape", {rows.count, width})};
  }
};

/// Format 0 is row-major; others are tiles of a GPU.
void check_format(ModuleTensors& tensors) {
  const TensorView* format = tensors.find(".weight_format", {DType::kU8});
  if (format && !format->bytes.empty() && !format->is_hollow() && format->bytes[0] != std::byte{0})
    fail("unreadable: ", format->name, " is ", static_cast<int>(format->bytes[0]),
         ", expected 0 (row-major)");
}

std::unique_ptr<CodedMatrix> open_8bit(ModuleTensors& tensors) {
  const TensorView& codes = tensors.need(kWeightCodes, {DType::kI8}, 2);
  const TensorView& largest = tensors.need(".SCB", {DType::kF32}, Shape{codes.shape[0]});
  for (int64_t row = 0; row < codes.shape[0] && !largest.is_hollow(); ++row)
    if (const float value = scale_at(largest, row); !std::isfinite(value) || value < 0)
      fail("unreadable: ", largest.name, " holds ", value, ", expected finite magnitudes");
  check_format(tensors);
  return std::make_unique<Bitsandbytes8bit>(codes.shape, codes, std::vector{largest});
}

}  // namespace

CodeFormat bitsandbytes_4bit() {
  return {.codes_name = ".weight.absmax", .open = open_4bit};
}

CodeFormat bitsandbytes_8bit() {
  return {.codes_name = ".SCB", .open = open_8bit};
}

}  // namespace kvcal
