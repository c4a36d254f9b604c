#include "forward/layer_context.h"

#include <algorithm>

#include "core/error.h"
#include "family/architecture.h"
#include "family/config_reader.h"

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
  const int64_t most_heads = widest(&AttentionSizes::heads);
  const bool is_latent = c.architecture->has_latent_attention;
  const auto widest_latent = [&](const auto& size) {
    return c.largest([&](const LayerConfig& layer) { return std::invoke(size, layer.latent); });
  };
  const int64_t query_rank = widest_latent(&LatentConfig::query_rank);
  const int64_t latent_rank = widest_latent(&LatentConfig::latent_rank);
  const int64_t rotated_dim = widest_latent(&LatentConfig::rope_dim);
  const int64_t latent_width = widest_latent(&LatentConfig::width);
  const int64_t latent_up_width = c.largest(
      [](const LayerConfig& layer) { return layer.latent.up_width(layer.attention.heads); });
  const bool is_indexed = c.indexer.topk > 0;
  const bool has_query_gate = c.architecture->has_query_gate;
  const bool norms_attended = has_row(*c.architecture, Role::kAttendedNorm);
  const bool norms_inner = has_row(*c.architecture, Role::kInnerNorm);
  const bool has_experts = c.architecture->has_experts();
  const int64_t expert_width = c.size_of(Dim::kExpertWidth);
  const bool is_recurrent = c.recurrent.heads > 0;
  const int64_t channels = is_recurrent ? c.recurrent.channels : 0;
  const bool has_wide_decays = c.recurrent.fades_by_key && c.recurrent.decay_rank == 0;
  const int64_t decays_width = has_wide_decays ? c.recurrent.keys() : c.recurrent.heads;
  const int64_t step_rank = c.recurrent.step_rank;
  const bool steps_have_rank = step_rank > 0;
  const int64_t low_rank = std::max({step_rank, c.recurrent.gate_rank, c.recurrent.decay_rank});
  const bool has_streams = c.streams > 1, connects_streams = c.connections.exist();
  const bool has_planes = has_streams && !c.attends_residuals;    // the layers copy the streams
  const int64_t planes = c.streams + (connects_streams ? 1 : 0);  // behind the streams: an output
  const int64_t mixed_width = c.mixes_streams() ? c.streams * c.hidden_size : 0;
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

void LayerPart::observe(LinearInput input) {
  if (!context_.observer) return;
  input.layer = context_.layer_index;
  if (input.segments.empty()) input.segments = batch().segments;
  context_.observer(input);
}

void LayerPart::observe(Role role, const Buffer& x, int64_t width, int64_t index) {
  observe(
      {.role = role, .index = index, .x = x.data(), .type = type_, .rows = rows(), .width = width});
}

void LayerPart::fold(AmaxSlot slot, const void* x, int64_t count, ComputeType type) {
  if (slot)
    backend_.observe_amax(
        {.x = x, .type = type, .count = count, .amax = slot.amax, .nonfinite = slot.nonfinite});
}

void LayerPart::convert(ComputeType type, const float* x, int64_t width, void* out, AmaxSlot seen) {
  kvcal::convert(backend_, x, rows(), width, type, out);
  fold(seen, out, rows() * width, type);
}

void LayerPart::convert_input(Role role, const float* x, int64_t width, const Buffer& out,
                              int64_t index) {
  convert(type_, x, width, out.data(), slot_of(role, index));
  observe(role, out, width, index);
}

void LayerPart::normalize(const float* x, const PackedNorm& norm, ComputeType type, void* out,
                          AmaxSlot seen) {
  if (!norm.exists())  // families that norm outputs only
    return convert(type, x, config_.hidden_size, out, seen);
  kvcal::normalize(backend_, config_, norm,
                   {.x = x, .rows = rows(), .type = type, .out = out, .seen = seen});
}

void LayerPart::normalize_stream(float* hidden, const PackedNorm& norm) {
  if (!norm.exists()) return;
  normalize(hidden, norm, ComputeType::kFloat32, buffers_.output_normed.data());
  copy(buffers_.output_normed.as<float>(), view(hidden, config_.hidden_size));
}

void LayerPart::normalize_input(Role role, const float* x, const PackedNorm& norm) {
  normalize(x, norm, type_, buffers_.normed.data(), slot_of(role));
  observe(role, buffers_.normed, config_.hidden_size);
}

void LayerPart::gate(RowsView x, RowsView gate, GateFunction function, int64_t width,
                     ComputeType out_type, void* out, AmaxSlot seen) {
  backend_.multiply_gate({.x = x,
                          .gate = gate,
                          .function = function,
                          .rows = rows(),
                          .width = width,
                          .out_type = out_type,
                          .out = out,
                          .seen = seen});
}

void LayerPart::project(const void* x, const PackedLinear& linear, int64_t rows, float* out,
                        bool accumulate) {
  multiply(backend_, {.x = x,
                      .linear = linear,
                      .accumulate = accumulate,
                      .rows = rows,
                      .out = out,
                      .is_decoding = is_decoding(),
                      .scratch = &context_.scratch});
  if (!linear.factors.exists()) return;
  KVCAL_CHECK(!accumulate);
  const int64_t width = linear.matrix->out_features;
  backend_.multiply_gate({.x = {.data = out, .row_stride = width},
                          .gate = {.data = linear.factors.get(), .row_stride = 0},
                          .function = GateFunction::kIdentity,
                          .rows = rows,
                          .width = width,
                          .out = out});
}

void LayerPart::convolve(const Buffer& x, const PackedValues& weight, int64_t channels,
                         const LayerStates* states, Buffer LayerStates::*part, const Buffer& out) {
  for (const SlotRun& run : slot_runs(batch(), states != nullptr))
    backend_.causal_conv({.x = {.data = x.as<float>(), .row_stride = channels},
                          .weight = weight.get(),
                          .segments = run.segments,
                          .channels = channels,
                          .kernel = config_.short_kernel,
                          .state = states ? states->of(part, run.first_slot) : nullptr,
                          .out = out.as<float>()});
}

void LayerPart::add_projected(const Buffer& x, const PackedLinear& linear, const Branch& branch,
                              float* hidden) {
  if (branch.adds_directly()) return project(x.data(), linear, rows(), hidden, true);
  project(x, linear, buffers_.projected);
  add_output(buffers_.projected, branch, hidden);
}

ResidualNormArgs LayerPart::output_args(const Buffer& x, const Branch& branch,
                                        float* hidden) const {
  KVCAL_CHECK(!branch.norm.bias.exists());  // no family's output norm has one
  return {.x = x.as<float>(),
          .output_weight = branch.norm.weight.get(),
          .multiplier = branch.multiplier,
          .hidden = hidden,
          .centered = config_.centers_norm,
          .epsilon = config_.norm_eps,
          .rows = rows(),
          .width = config_.hidden_size,
          .scratch = buffers_.output_normed.as<float>()};
}

}  // namespace kvcal
