#include "forward/embedding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <string_view>
#include <vector>

#include "backend/memory.h"
#include "family/architecture.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

constexpr float kInverseRoot2 = 1.0f / std::numbers::sqrt2_v<float>;
/// Rows of a table that are read before its pages are released: each may map 64 KiB.
constexpr size_t kRowsUntilDrop = 1024;
/// Bytes of a table that are copied before its pages are released.
constexpr size_t kBytesUntilDrop = size_t{16} << 20;

/// Embeds all rows of a table in their order.
void embed_in_order(const TensorView& rows, float multiplier, bool accumulate, Backend& backend,
                    float* out) {
  std::vector<int32_t> places(static_cast<size_t>(rows.shape[0]));
  std::iota(places.begin(), places.end(), 0);
  backend.embed({.table = rows,
                 .ids = places,
                 .multiplier = multiplier,
                 .accumulate = accumulate,
                 .out = out});
}

TensorView float_table(std::string_view name, const std::vector<float>& rows, int64_t width) {
  return {.name = name,
          .dtype = DType::kF32,
          .shape = {std::ssize(rows) / width, width},
          .bytes = std::as_bytes(std::span(rows))};
}

/// Decodes the requested rows alone.
void embed_quantized(const ModelConfig& config, const TensorView& table,
                     const LinearQuantization& quantization, std::span<const TokenId> ids,
                     Backend& backend, float* out) {
  if (!quantization.coded) {
    const WeightRows rows = dequantized_rows(
        table, quantization.weight_scale, quantization.block_rows, quantization.block_columns, ids);
    return embed_in_order(rows.parts[0], config.embedding_multiplier, false, backend, out);
  }
  const CodedMatrix& coded = *quantization.coded;
  const auto width = static_cast<size_t>(coded.width());
  std::vector<float> rows(ids.size() * width);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= coded.rows())
      fail("token id ", ids[i], " leaves '", coded.codes().name, "' of ",
           counted(coded.rows(), "row"));
    coded.decode(ids[i], 1, rows.data() + i * width);
  }
  embed_in_order(float_table(coded.codes().name, rows, coded.width()), config.embedding_multiplier,
                 false, backend, out);
}

/// Waves that the model adds to the embedding, [positions, width]: sines, then cosines. Source:
/// transformers, models/xglm, `get_embedding`.
std::vector<float> waves(std::span<const int32_t> positions, int64_t width) {
  const int64_t half = width / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(half - 1, 1));
  std::vector<float> rows(positions.size() * static_cast<size_t>(width), 0.0f);
  for (size_t row = 0; row < positions.size(); ++row)
    for (int64_t i = 0; i < half; ++i) {
      const auto frequency = static_cast<float>(std::exp(-step * static_cast<double>(i)));
      const float angle = static_cast<float>(positions[row]) * frequency;
      float* place = rows.data() + row * static_cast<size_t>(width) + i;
      place[0] = std::sin(angle);
      place[half] = std::cos(angle);
    }
  return rows;
}

void add_waves(const ModelConfig& config, std::span<const int32_t> positions, Backend& backend,
               float* out) {
  const std::vector<float> rows = waves(positions, config.hidden_size);
  embed_in_order(float_table("positions", rows, config.hidden_size), 1.0f, true, backend, out);
}

void normalize_rows(const ModelConfig& config, const PackedNorm& norm, int64_t count,
                    Backend& backend, float* out) {
  backend.norm_heads({.x = contiguous(out, count, 1, config.hidden_size),
                      .weight = norm.weight.get(),
                      .bias = norm.bias.get(),
                      .centered = config.centers_norm,
                      .epsilon = config.norm_eps});
}

/// Rows of the table, [ids, embedding_size], times the multiplier.
void look_up(const ModelConfig& config, const Weights& weights, std::span<const TokenId> ids,
             Backend& backend, float* out, const std::byte* resident) {
  const TensorView& table = weights.at(Role::kEmbedding);
  if (const LinearQuantization* quantization = weights.quantization(Role::kEmbedding))
    return embed_quantized(config, table, *quantization, ids, backend, out);
  backend.embed({.table = table,
                 .ids = ids,
                 .multiplier = config.embedding_multiplier,
                 .out = out,
                 .resident = resident});
}

/// out: [ids, hidden_size].
void project_rows(const ModelConfig& config, const PackedEmbedding& packed, const float* rows,
                  int64_t count, Backend& backend, float* out) {
  const int64_t width = config.embedding_size;
  const Buffer input = backend.allocate(static_cast<size_t>(count * width) * bytes_of(packed.type));
  ProductScratch scratch;
  convert(backend, rows, count, width, packed.type, input.data());
  multiply(backend, {.x = input.data(),
                     .linear = packed.projection,
                     .rows = count,
                     .out = out,
                     .scratch = &scratch});
}

}  // namespace

void embed_tokens(const ModelConfig& config, const Weights& weights, const PackedEmbedding& packed,
                  std::span<const TokenId> ids, std::span<const int32_t> positions,
                  Backend& backend, float* out, const std::byte* resident) {
  const int64_t count = std::ssize(ids);
  if (packed.projection.matrix) {
    const Buffer rows = allocate<float>(backend, count * config.embedding_size);
    look_up(config, weights, ids, backend, rows.as<float>(), resident);
    project_rows(config, packed, rows.as<float>(), count, backend, out);
  } else {
    look_up(config, weights, ids, backend, out, resident);
  }
  if (packed.norm.exists()) normalize_rows(config, packed.norm, count, backend, out);
  const Architecture& architecture = *config.architecture;
  std::vector<int32_t> rows(positions.begin(), positions.end());
  for (int32_t& row : rows) row += static_cast<int32_t>(architecture.position_offset);
  if (architecture.positions == Positions::kSinusoidal) add_waves(config, rows, backend, out);
  if (!weights.has(Role::kPositionEmbedding)) return;
  const int32_t last = *std::ranges::max_element(positions);
  if (last >= config.max_position_embeddings)
    fail("a sequence of ", last + 1, " tokens is longer than the ",
         counted(config.max_position_embeddings, "position"), " the model has learned");
  backend.embed(
      {.table = weights.at(Role::kPositionEmbedding), .ids = rows, .accumulate = true, .out = out});
}

Buffer embedding_on_device(const Weights& weights, Backend& backend, int64_t tokens,
                           uint64_t room) {
  if (backend.is_host() || weights.quantization(Role::kEmbedding)) return {};
  const TensorView& table = weights.at(Role::kEmbedding);
  if (table.bytes.size() > room || tokens < table.shape[0]) return {};
  Buffer resident = backend.allocate(table.bytes.size());
  for (size_t begin = 0; begin < table.bytes.size(); begin += kBytesUntilDrop) {
    const size_t count = std::min(kBytesUntilDrop, table.bytes.size() - begin);
    backend.copy_in(table.bytes.subspan(begin, count), resident.data() + begin);
    weights.drop(Role::kEmbedding);
  }
  return resident;
}

void embed_layer_input(const ModelConfig& config, const Weights& weights, int64_t layer,
                       std::span<const TokenId> ids, Backend& backend, float* out) {
  const TensorView& all = weights.at(Role::kLayerInputEmbedding);
  const auto element = static_cast<size_t>(bits_of_dtype(all.dtype) / 8);
  const auto size = static_cast<size_t>(config.layer_input_size);
  const size_t row_bytes = static_cast<size_t>(all.shape[1]) * element;
  const size_t first = static_cast<size_t>(layer) * size * element;
  std::vector<std::byte> bytes(ids.size() * size * element);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_inside = ids[i] >= 0 && ids[i] < all.shape[0];
    if (!is_inside && !config.architecture->replaces_layer_inputs)
      fail("token id ", ids[i], " leaves '", all.name, "' of ", counted(all.shape[0], "row"));
    const size_t row = is_inside ? static_cast<size_t>(ids[i]) : 0;
    std::memcpy(bytes.data() + i * size * element, all.bytes.data() + row * row_bytes + first,
                size * element);
    // Every row lies in other pages, which count as memory while they are mapped.
    if (i % kRowsUntilDrop == kRowsUntilDrop - 1) weights.drop(Role::kLayerInputEmbedding);
  }
  weights.drop(Role::kLayerInputEmbedding);
  const TensorView table{.name = all.name,
                         .dtype = all.dtype,
                         .shape = {std::ssize(ids), config.layer_input_size},
                         .bytes = bytes};
  embed_in_order(table, std::sqrt(static_cast<float>(size)) * kInverseRoot2, false, backend, out);
}

}  // namespace kvcal
