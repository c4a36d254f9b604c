#include "forward/recurrent_mixer.h"

#include <utility>
#include <vector>

#include "core/error.h"
#include "family/architecture.h"

namespace kvcal {
namespace {

/// Columns of rows.
RowsView columns(const Buffer& rows, int64_t first, int64_t stride) {
  return {.data = rows.as<float>() + first, .row_stride = stride};
}

}  // namespace

void RecurrentMixer::run(const float* hidden, const LayerStates* states) {
  if (hidden) normalize_input(Role::kMixerIn, hidden, layer().mixer_norm);
  project(buffers_.normed, mixer().in, buffers_.mixed_in);
  if (config_.architecture->recurrence == Mixer::kShortConvolution) gate_before_convolution();
  states_ = states;
  const std::vector<SlotRun> runs = slot_runs(batch(), states != nullptr);
  for (const SlotRun& run : runs) convolve_channels(run);
  scan(runs);
  gate_scanned();
  observe(Role::kMixerOut, buffers_.mixed, config_.recurrent.inner());
}

RowsView RecurrentMixer::projected(int64_t first) const {
  return columns(buffers_.mixed_in, first, mixer().in.matrix->out_features);
}

// The projection of a short convolution holds the gate before it, the gate behind it, and its
// input. Source: transformers lfm2 `Lfm2ShortConv`.
void RecurrentMixer::gate_before_convolution() {
  const int64_t channels = config_.recurrent.channels;
  gate(projected(2 * channels), projected(0), GateFunction::kIdentity, channels,
       ComputeType::kFloat32, buffers_.scanned.data());
}

void RecurrentMixer::convolve_channels(const SlotRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const bool is_short = config_.architecture->recurrence == Mixer::kShortConvolution;
  backend_.causal_conv({.x = is_short ? columns(buffers_.scanned, 0, recurrent.channels)
                                      : projected(recurrent.gates_width()),
                        .weight = mixer().conv_weight.get(),
                        .bias = mixer().conv_bias.get(),
                        .silu = !is_short,
                        .segments = run.segments,
                        .channels = recurrent.channels,
                        .kernel = recurrent.kernel,
                        .state = state_of(&LayerStates::convolution, run),
                        .out = buffers_.convolved.as<float>()});
}

void RecurrentMixer::scan(std::span<const SlotRun> runs) {
  const Mixer kind = config_.architecture->recurrence;
  if (kind == Mixer::kShortConvolution) return;
  if (kind == Mixer::kMamba) project_mamba();
  const int64_t rank = config_.recurrent.decay_rank, gate_width = config_.recurrent.gate_width();
  if (rank > 0) project_low(Role::kMixerAlphaUp, projected(gate_width), rank, mixer().decays);
  for (const SlotRun& run : runs)
    if (kind == Mixer::kDeltaNet)
      scan_delta(run);
    else
      scan_states(run);
}

void RecurrentMixer::project_mamba() {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t rank = recurrent.step_rank, width = rank + 2 * recurrent.state_dim;
  convert_input(Role::kMixerStates, buffers_.convolved.as<float>(), recurrent.inner(),
                buffers_.mixed);
  project(buffers_.mixed, mixer().states, buffers_.states);
  const float* part = buffers_.states.as<float>();
  for (const auto& [norm, count] : {std::pair{&mixer().step_norm, rank},
                                    {&mixer().b_norm, recurrent.state_dim},
                                    {&mixer().c_norm, recurrent.state_dim}}) {
    backend_.norm_heads(
        {.x = view(part, count, width), .weight = norm->get(), .epsilon = config_.norm_eps});
    part += count;
  }
  project_low(Role::kMixerStep, columns(buffers_.states, 0, width), rank, mixer().step);
}

void RecurrentMixer::project_low(Role role, RowsView low, int64_t rank,
                                 const PackedLinear& linear) {
  const float* step_rows = buffers_.step_rows.as<float>();
  backend_.copy_heads(
      {.x = view(low.data, rank, low.row_stride), .out = view(step_rows, rank), .width = rank});
  convert_input(role, step_rows, rank, buffers_.step_input);
  project(buffers_.step_input, linear, buffers_.steps);
}

void RecurrentMixer::scan_states(const SlotRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const Mixer kind = config_.architecture->recurrence;
  KVCAL_CHECK(kind == Mixer::kMamba || kind == Mixer::kMamba2 || kind == Mixer::kLightning);
  const int64_t inner = recurrent.inner(), channels = recurrent.channels;
  const int64_t states = recurrent.groups * recurrent.state_dim;
  const int64_t rank = recurrent.step_rank, width = rank + 2 * recurrent.state_dim;
  const bool is_first = kind == Mixer::kMamba;
  backend_.ssm_scan({.x = columns(buffers_.convolved, 0, channels),
                     .dt = mixer().steps.exists() ? RowsView{.data = mixer().steps.get()}
                           : is_first             ? columns(buffers_.steps, 0, inner)
                                                  : projected(inner + channels),
                     .dt_bias = mixer().dt_bias.get(),
                     .dt_min = recurrent.dt_min,
                     .dt_max = recurrent.dt_max,
                     .a = mixer().decay.get(),
                     .a_per_state = is_first,
                     .b = is_first ? columns(buffers_.states, rank, width)
                                   : columns(buffers_.convolved, inner, channels),
                     .c = is_first ? columns(buffers_.states, rank + recurrent.state_dim, width)
                                   : columns(buffers_.convolved, inner + states, channels),
                     .d = mixer().skip.get(),
                     .segments = run.segments,
                     .heads = recurrent.heads,
                     .head_dim = recurrent.head_dim,
                     .groups = recurrent.groups,
                     .state_dim = recurrent.state_dim,
                     .state = state_of(&LayerStates::scan, run),
                     .out = buffers_.scanned.as<float>()});
}

void RecurrentMixer::scan_delta(const SlotRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t channels = recurrent.channels;
  const int64_t keys = recurrent.keys();
  const int64_t gates = recurrent.gates_width() + channels;
  const RowsView decays = recurrent.decay_rank > 0 ? columns(buffers_.steps, 0, keys)
                                                   : projected(gates + recurrent.heads);
  backend_.delta_scan({.q = columns(buffers_.convolved, 0, channels),
                       .k = columns(buffers_.convolved, keys, channels),
                       .v = columns(buffers_.convolved, 2 * keys, channels),
                       .g = decays,
                       .beta = projected(gates),
                       .decay_rate = mixer().decay.get(),
                       .g_bias = mixer().dt_bias.get(),
                       .decay_floor = recurrent.decay_floor,
                       .decay_per_key = recurrent.fades_by_key,
                       .logistic_beta = true,
                       .beta_range = recurrent.beta_range,
                       .segments = run.segments,
                       .k_heads = recurrent.groups,
                       .v_heads = recurrent.heads,
                       .k_dim = recurrent.state_dim,
                       .v_dim = recurrent.head_dim,
                       .state = state_of(&LayerStates::scan, run),
                       .out = buffers_.scanned.as<float>()});
}

void RecurrentMixer::gate_scanned() {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t inner = recurrent.inner(), channels = recurrent.channels;
  const auto seen = slot_of(Role::kMixerOut);
  if (config_.architecture->recurrence == Mixer::kShortConvolution)
    return gate(columns(buffers_.convolved, 0, channels), projected(channels),
                GateFunction::kIdentity, channels, type_, buffers_.mixed.data(), seen);
  if (!mixer().norm.exists())
    return gate(columns(buffers_.scanned, 0, inner), projected(0), GateFunction::kSilu, inner,
                type_, buffers_.mixed.data(), seen);
  const Mixer kind = config_.architecture->recurrence;
  const bool is_mamba = kind == Mixer::kMamba2 || kind == Mixer::kLightning;
  const int64_t groups = is_mamba ? recurrent.norm_groups : recurrent.heads;
  const bool has_rank = recurrent.gate_rank > 0;
  if (has_rank) project_low(Role::kMixerZUp, projected(0), recurrent.gate_rank, mixer().gates);
  backend_.gated_norm(
      {.x = columns(buffers_.scanned, 0, inner),
       .gate = has_rank ? columns(buffers_.steps, 0, inner) : projected(0),
       .weight = mixer().norm.get(),
       .weight_per_group = is_mamba,
       .gate_first = is_mamba && !config_.norms_before_gate,
       .function = kind == Mixer::kLightning || recurrent.fades_by_key || recurrent.sigmoid_gate
                       ? GateFunction::kSigmoid
                       : GateFunction::kSilu,
       .epsilon = recurrent.norm_eps > 0.0f ? recurrent.norm_eps : config_.norm_eps,
       .rows = rows(),
       .groups = groups,
       .width = inner / groups,
       .out_type = type_,
       .out = buffers_.mixed.data(),
       .seen = seen});
}

}  // namespace kvcal
