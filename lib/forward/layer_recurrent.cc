// Recurrent mixers of LayerRunner: Mamba 1 and 2, the gated delta net, and the short convolution.
#include <utility>

#include "family/architecture.h"
#include "forward/layer_runner.h"

namespace kvcal {
namespace {

/// Columns of a projection.
RowsView columns(const Buffer& rows, int64_t first, int64_t stride) {
  return {.data = rows.as<float>() + first, .row_stride = stride};
}

std::vector<StateRun> state_runs(const TokenBatch& batch, const RecurrentState* state) {
  const std::span<const Segment> segments = batch.segments;
  if (!state) return {{.segments = segments}};
  const auto slot_of = [&](size_t i) { return batch.slots.empty() ? 0 : batch.slots[i]; };
  std::vector<StateRun> runs;
  for (size_t begin = 0, end = 0; begin < segments.size(); begin = end) {
    for (end = begin + 1; end < segments.size() && slot_of(end) == slot_of(end - 1) + 1;) ++end;
    runs.push_back({.segments = segments.subspan(begin, end - begin),
                    .convolution = state->convolution_of(slot_of(begin)),
                    .scan = state->scan_of(slot_of(begin))});
  }
  return runs;
}

}  // namespace

void LayerRunner::run_without_attention(const PackedLayer& layer, int64_t layer_index,
                                        float* hidden, const TokenBatch& batch,
                                        RecurrentState* state) {
  layer_index_ = layer_index;
  is_decoding_ = batch.is_decoding && !batch.has_fixed_products;
  segments_ = batch.segments;
  const int64_t tokens = batch.num_tokens;
  bool is_normed = false;
  if (config_.layer(layer_index).has_recurrence) {
    mix(layer, hidden, batch, state);
    is_normed = add_mixed(layer, buffers_.mixed.data(), layer.recurrence.out,
                          config_.mixer_output_multiplier, tokens, hidden);
  }
  feed_forward(layer, hidden, tokens, is_normed);
}

void LayerRunner::mix(const PackedLayer& layer, const float* hidden, const TokenBatch& batch,
                      const RecurrentState* state) {
  const int64_t tokens = batch.num_tokens;
  normalize(hidden, layer.mixer_norm, tokens, type_, buffers_.normed.data(),
            slot_of(Role::kMixerIn));
  observe(Role::kMixerIn, buffers_.normed, tokens, config_.hidden_size);
  project(buffers_.normed, layer.recurrence.in, tokens, buffers_.mixed_in);
  if (config_.architecture->recurrence == Mixer::kShortConvolution)
    gate_before_convolution(layer.recurrence, tokens);
  const std::vector<StateRun> runs = state_runs(batch, state);
  for (const StateRun& run : runs) convolve(layer.recurrence, run);
  scan(layer.recurrence, tokens, runs);
  gate_scanned(layer.recurrence, tokens);
  observe(Role::kMixerOut, buffers_.mixed, tokens, config_.recurrent.inner());
}

// The projection of a short convolution holds the gate before it, the gate behind it, and its
// input. Source: transformers lfm2 `Lfm2ShortConv`.
void LayerRunner::gate_before_convolution(const PackedRecurrence& mixer, int64_t rows) {
  const int64_t channels = config_.recurrent.channels, width = mixer.in.matrix->out_features;
  backend_.multiply_gate({.x = columns(buffers_.mixed_in, 2 * channels, width),
                          .gate = columns(buffers_.mixed_in, 0, width),
                          .function = GateFunction::kIdentity,
                          .rows = rows,
                          .width = channels,
                          .out = buffers_.scanned.data()});
}

void LayerRunner::convolve(const PackedRecurrence& mixer, const StateRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const bool is_short = config_.architecture->recurrence == Mixer::kShortConvolution;
  backend_.causal_conv(
      {.x = is_short ? columns(buffers_.scanned, 0, recurrent.channels)
                     : columns(buffers_.mixed_in, recurrent.inner(), mixer.in.matrix->out_features),
       .weight = mixer.conv_weight.get(),
       .bias = mixer.conv_bias.get(),
       .silu = !is_short,
       .segments = run.segments,
       .channels = recurrent.channels,
       .kernel = recurrent.kernel,
       .state = run.convolution,
       .out = buffers_.convolved.as<float>()});
}

void LayerRunner::scan(const PackedRecurrence& mixer, int64_t tokens,
                       std::span<const StateRun> runs) {
  const Mixer kind = config_.architecture->recurrence;
  if (kind == Mixer::kShortConvolution) return;
  if (kind == Mixer::kMamba) project_mamba(mixer, tokens);
  for (const StateRun& run : runs) {
    switch (kind) {
      case Mixer::kMamba:
        scan_mamba(mixer, run);
        break;
      case Mixer::kMamba2:
        scan_mamba2(mixer, run);
        break;
      case Mixer::kDeltaNet:
        scan_delta(mixer, run);
        break;
      default:
        KVCAL_CHECK(false);
    }
  }
}

void LayerRunner::project_mamba(const PackedRecurrence& mixer, int64_t tokens) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t inner = recurrent.inner();
  const int64_t rank = recurrent.step_rank, width = rank + 2 * recurrent.state_dim;
  convert(type_, buffers_.convolved.as<float>(), tokens, inner, buffers_.mixed.data(),
          slot_of(Role::kMixerStates));
  observe(Role::kMixerStates, buffers_.mixed, tokens, inner);
  project(buffers_.mixed, mixer.states, tokens, buffers_.states);
  int64_t first = 0;
  for (const auto& [norm, count] : {std::pair{&mixer.step_norm, rank},
                                    {&mixer.b_norm, recurrent.state_dim},
                                    {&mixer.c_norm, recurrent.state_dim}}) {
    const HeadsView part{buffers_.states.as<float>() + first, tokens, 1, count, width};
    backend_.norm_heads({.x = part, .weight = norm->get(), .epsilon = config_.norm_eps});
    first += count;
  }
  backend_.copy_heads({.x = {buffers_.states.as<float>(), tokens, 1, rank, width},
                       .out = {buffers_.step_rows.as<float>(), tokens, 1, rank, rank},
                       .width = rank});
  convert(type_, buffers_.step_rows.as<float>(), tokens, rank, buffers_.step_input.data(),
          slot_of(Role::kMixerStep));
  observe(Role::kMixerStep, buffers_.step_input, tokens, rank);
  project(buffers_.step_input, mixer.step, tokens, buffers_.steps);
}

void LayerRunner::scan_mamba(const PackedRecurrence& mixer, const StateRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t inner = recurrent.inner();
  const int64_t rank = recurrent.step_rank, width = rank + 2 * recurrent.state_dim;
  backend_.ssm_scan({.x = columns(buffers_.convolved, 0, inner),
                     .dt = columns(buffers_.steps, 0, inner),
                     .dt_bias = mixer.dt_bias.get(),
                     .a = mixer.decay.get(),
                     .a_per_state = true,
                     .b = columns(buffers_.states, rank, width),
                     .c = columns(buffers_.states, rank + recurrent.state_dim, width),
                     .d = mixer.skip.get(),
                     .segments = run.segments,
                     .heads = recurrent.heads,
                     .head_dim = 1,
                     .groups = 1,
                     .state_dim = recurrent.state_dim,
                     .state = run.scan,
                     .out = buffers_.scanned.as<float>()});
}

void LayerRunner::scan_mamba2(const PackedRecurrence& mixer, const StateRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t inner = recurrent.inner(), channels = recurrent.channels;
  const int64_t states = recurrent.groups * recurrent.state_dim;
  backend_.ssm_scan(
      {.x = columns(buffers_.convolved, 0, channels),
       .dt = columns(buffers_.mixed_in, inner + channels, mixer.in.matrix->out_features),
       .dt_bias = mixer.dt_bias.get(),
       .dt_min = recurrent.dt_min,
       .dt_max = recurrent.dt_max,
       .a = mixer.decay.get(),
       .b = columns(buffers_.convolved, inner, channels),
       .c = columns(buffers_.convolved, inner + states, channels),
       .d = mixer.skip.get(),
       .segments = run.segments,
       .heads = recurrent.heads,
       .head_dim = recurrent.head_dim,
       .groups = recurrent.groups,
       .state_dim = recurrent.state_dim,
       .state = run.scan,
       .out = buffers_.scanned.as<float>()});
}

void LayerRunner::scan_delta(const PackedRecurrence& mixer, const StateRun& run) {
  const RecurrentConfig& recurrent = config_.recurrent;
  const int64_t channels = recurrent.channels, width = mixer.in.matrix->out_features;
  const int64_t keys = recurrent.keys();
  const int64_t gates = recurrent.inner() + channels;
  backend_.delta_scan({.q = columns(buffers_.convolved, 0, channels),
                       .k = columns(buffers_.convolved, keys, channels),
                       .v = columns(buffers_.convolved, 2 * keys, channels),
                       .g = columns(buffers_.mixed_in, gates + recurrent.heads, width),
                       .beta = columns(buffers_.mixed_in, gates, width),
                       .decay_rate = mixer.decay.get(),
                       .g_bias = mixer.dt_bias.get(),
                       .logistic_beta = true,
                       .beta_range = recurrent.beta_range,
                       .segments = run.segments,
                       .k_heads = recurrent.groups,
                       .v_heads = recurrent.heads,
                       .k_dim = recurrent.state_dim,
                       .v_dim = recurrent.head_dim,
                       .state = run.scan,
                       .out = buffers_.scanned.as<float>()});
}

void LayerRunner::gate_scanned(const PackedRecurrence& mixer, int64_t rows) {
  const RecurrentConfig& recurrent = config_.recurrent;
  if (config_.architecture->recurrence == Mixer::kShortConvolution) {
    const int64_t channels = recurrent.channels, width = mixer.in.matrix->out_features;
    backend_.multiply_gate({.x = columns(buffers_.convolved, 0, channels),
                            .gate = columns(buffers_.mixed_in, channels, width),
                            .function = GateFunction::kIdentity,
                            .rows = rows,
                            .width = channels,
                            .out_type = type_,
                            .out = buffers_.mixed.data(),
                            .seen = slot_of(Role::kMixerOut)});
    return;
  }
  if (!mixer.norm.exists()) {
    backend_.multiply_gate({.x = columns(buffers_.scanned, 0, recurrent.inner()),
                            .gate = columns(buffers_.mixed_in, 0, mixer.in.matrix->out_features),
                            .function = GateFunction::kSilu,
                            .rows = rows,
                            .width = recurrent.inner(),
                            .out_type = type_,
                            .out = buffers_.mixed.data(),
                            .seen = slot_of(Role::kMixerOut)});
    return;
  }
  const bool is_mamba = config_.architecture->recurrence == Mixer::kMamba2;
  const int64_t groups = is_mamba ? recurrent.norm_groups : recurrent.heads;
  backend_.gated_norm({.x = columns(buffers_.scanned, 0, recurrent.inner()),
                       .gate = columns(buffers_.mixed_in, 0, mixer.in.matrix->out_features),
                       .weight = mixer.norm.get(),
                       .weight_per_group = is_mamba,
                       .gate_first = is_mamba && !config_.norms_before_gate,
                       .epsilon = recurrent.norm_eps > 0.0f ? recurrent.norm_eps : config_.norm_eps,
                       .rows = rows,
                       .groups = groups,
                       .width = recurrent.inner() / groups,
                       .out_type = type_,
                       .out = buffers_.mixed.data(),
                       .seen = slot_of(Role::kMixerOut)});
}

}  // namespace kvcal
