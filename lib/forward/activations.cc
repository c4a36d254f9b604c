#include "forward/activations.h"

#include <algorithm>

#include "family/architecture.h"

namespace kvcal {
namespace {

enum class Element : uint8_t { kFloat32, kInt32, kCompute, kFp8 };

uint64_t element_bytes(Element element, ComputeType type) {
  switch (element) {
    case Element::kFloat32:
    case Element::kInt32:
      return sizeof(float);
    case Element::kCompute:
      return bytes_of(type);
    case Element::kFp8:
      return 1;
  }
  return 0;
}

int64_t widest_mlp(const ModelConfig& config) {
  int64_t width = config.moe.shared_intermediate_size;
  for (const LayerConfig& layer : config.layers)
    width = std::max({width, layer.is_moe ? config.moe.intermediate_size : layer.intermediate_size,
                      config.architecture->has_mlp_beside_experts ? layer.intermediate_size : 0});
  return width;
}

}  // namespace

std::vector<Activations::Row> Activations::rows_of(const ModelConfig& c, const Backend& backend,
                                                   ComputeType type) {
  const auto widest = [&](const auto& width) {
    return c.largest([&](const LayerConfig& layer) { return std::invoke(width, layer.attention); });
  };
  const int64_t query_width = widest(&AttentionSizes::query_width);
  const int64_t attended_width = widest(&AttentionSizes::attended_width);
  const int64_t key_value_width =
      widest([](const AttentionSizes& sizes) { return sizes.key_width() + sizes.value_width(); });
  const bool is_latent = c.architecture->has_latent_attention;
  const bool is_indexed = c.indexer.topk > 0;
  const bool has_query_gate = c.architecture->has_query_gate;
  const bool has_experts = c.architecture->has_experts();
  const bool is_recurrent = c.recurrent.heads > 0;
  const int64_t channels = is_recurrent ? c.recurrent.channels : 0;
  const int64_t step_rank = c.recurrent.step_rank;
  const bool steps_have_rank = step_rank > 0;
  const bool has_streams = c.streams > 1;
  // The fused operation cannot look at a whole row of the gate.
  const bool is_sparse = std::ranges::any_of(
      c.layers, [](const LayerConfig& layer) { return layer.activation_sparsity > 0.0; });
  const bool activates_in_matmul = backend.activates_in_matmul();
#define KVCAL_ROW(name, element, reserved, width) \
  {&Activations::name, Reserved::reserved,        \
   static_cast<uint64_t>(width) * element_bytes(Element::element, type)},
  return {KVCAL_ACTIVATIONS(KVCAL_ROW)};
#undef KVCAL_ROW
}

Activations::Activations(const ModelConfig& config, Backend& backend, ComputeType type)
    : backend_(backend), rows_(rows_of(config, backend, type)) {}

void Activations::reserve(Reserved group, int64_t rows) {
  for (const Row& row : rows_) {
    Buffer& buffer = this->*row.buffer;
    const size_t bytes = static_cast<uint64_t>(rows) * row.bytes;
    if (row.reserved == group && buffer.size() < bytes) buffer = backend_.allocate(bytes);
  }
}

uint64_t Activations::bytes_per_token(const ModelConfig& config, const Backend& backend,
                                      ComputeType type, const ActivationUse& use) {
  uint64_t bytes = 0;
  for (const Row& row : rows_of(config, backend, type))
    if ((row.reserved != Reserved::kQuantizedQueries || use.quantizes_queries) &&
        (row.reserved != Reserved::kIndexed || use.selects_keys))
      bytes += row.bytes;
  return bytes;
}

}  // namespace kvcal
