#include "forward/gated_streams.h"

#include <cmath>
#include <vector>

#include "core/error.h"

namespace kvcal {
namespace {

/// Least agreement of a key and a stream, in magnitude, of which a root is taken.
constexpr float kLeastAgreement = 1e-6f;

}  // namespace

void GatedStreams::begin(const float* hidden, const LayerInputs& inputs,
                         const LayerStates* states) {
  streams_ = hidden;
  const bool is_first = context_.layer_index == 0;
  if (!is_first && !own().has_ngrams) return;
  float* const own_streams = buffers_.predicted.as<float>();
  for (int64_t i = 0; i < config_.streams; ++i)
    copy(hidden + (is_first ? 0 : i * stream_size()),
         view(own_streams + i * stream_size(), config_.hidden_size));
  streams_ = own_streams;
  if (own().has_ngrams) add_ngrams(inputs.ngrams, states);
}

void GatedStreams::normalize_wide(const PackedNorm& norm, const Buffer& wide) {
  backend_.norm_heads(
      {.x = contiguous(wide.as<float>(), rows(), config_.streams, config_.hidden_size),
       .weight = norm.weight.get(),
       .weight_per_head = true,
       .epsilon = config_.norm_eps});
}

void GatedStreams::normalize_streams(const PackedNorm& norm, const Buffer& out) {
  for (int64_t i = 0; i < config_.streams; ++i)
    copy(streams_ + i * stream_size(), stream_of(out, i));
  normalize_wide(norm, out);
}

void GatedStreams::mix(const PackedStreamMix& mix, Role down, Role up) {
  const int64_t width = config_.hidden_size, rank = config_.stream_mix_rank;
  const float share = 1.0f / static_cast<float>(config_.streams);
  const Buffer &wide = buffers_.wide, &gates = buffers_.wide_gates;
  normalize_streams(mix.norm, wide);
  convert_input(down, wide.as<float>(), all_width(), buffers_.wide_input);
  project(buffers_.wide_input, mix.down, buffers_.mix_low);
  backend_.scale({.x = view(buffers_.mix_low.as<float>(), rank), .factor = share});
  backend_.activate({.x = buffers_.mix_low.as<float>(),
                     .gated = false,
                     .activation = {.kind = Activation::kSilu},
                     .rows = rows(),
                     .width = rank,
                     .out_type = type_,
                     .out = buffers_.mix_low_input.data(),
                     .seen = slot_of(up)});
  observe(up, buffers_.mix_low_input, rank);
  project(buffers_.mix_low_input, mix.up, gates);
  gate({wide.as<float>(), all_width()}, {gates.as<float>(), all_width()}, GateFunction::kSigmoid,
       all_width(), ComputeType::kFloat32, wide.data());
  float* const sum = buffers_.stream_input.as<float>();
  const auto copy_stream = [&](int64_t stream, float* to) {
    backend_.copy_heads({.x = stream_of(wide, stream), .out = view(to, width), .width = width});
  };
  copy_stream(0, sum);
  for (int64_t i = 1; i < config_.streams; ++i) {
    copy_stream(i, buffers_.projected.as<float>());
    backend_.add({.x = buffers_.projected.as<float>(), .count = stream_size(), .out = sum});
  }
  backend_.scale({.x = view(sum, width), .factor = share});
  if (!mix.shares.matrix) return;
  // Twice a sigmoid, so that a share is 1 where nothing was learned.
  if (twos_.size() == 0)
    twos_ = upload<float>(
        std::vector<float>(static_cast<size_t>(context_.most_rows * config_.streams), 2.0f),
        backend_);
  float* const shares = buffers_.stream_coefficients.as<float>();
  project(buffers_.wide_input.data(), mix.shares, rows(), shares);
  backend_.scale({.x = view(shares, config_.streams), .factor = share});
  gate({twos_.as<float>(), config_.streams}, {shares, config_.streams}, GateFunction::kSigmoid,
       config_.streams, ComputeType::kFloat32, buffers_.stream_routes.data());
}

void GatedStreams::mix_for(Role role) {
  mix(layer().attention_mix, Role::kAttentionMixDown, Role::kAttentionMixUp);
  convert_input(role, buffers_.stream_input.as<float>(), config_.hidden_size, buffers_.normed);
}

void GatedStreams::mix_for_mlp(AmaxSlot seen) {
  mix(layer().mlp_mix, Role::kMlpMixDown, Role::kMlpMixUp);
  convert(type_, buffers_.stream_input.as<float>(), config_.hidden_size, buffers_.normed.data(),
          seen);
}

float* GatedStreams::output() {
  backend_.fill_zero(buffers_.active.data(), static_cast<size_t>(stream_size()) * sizeof(float));
  return buffers_.active.as<float>();
}

void GatedStreams::add_output(float* out) {
  backend_.mix_streams({.x = streams_,
                        .added = buffers_.active.as<float>(),
                        .coefficients = buffers_.stream_routes.as<float>(),
                        .streams = config_.streams,
                        .inputs = 1,
                        .rows = rows(),
                        .width = config_.hidden_size,
                        .out = out});
  streams_ = out;
}

void GatedStreams::join(float* hidden) {
  streams_ = hidden;
  mix(layer().final_mix, Role::kFinalMixDown, Role::kFinalMixUp);
  copy(buffers_.stream_input.as<float>(), view(hidden, config_.hidden_size));
}

void GatedStreams::add_ngrams(const float* embedded, const LayerStates* states) {
  KVCAL_CHECK(embedded);
  const PackedNgrams& packed = layer().ngrams;
  const int64_t width = config_.hidden_size;
  const Buffer &wide = buffers_.wide, &other = buffers_.wide_gates, &values = buffers_.ngram_values;
  convert_input(Role::kNgramKey, embedded, config_.ngrams.width, buffers_.ngram_input);
  project(buffers_.ngram_input, packed.key, wide);
  normalize_wide(packed.key_norm, wide);
  normalize_streams(packed.stream_norm, other);
  project(buffers_.ngram_input, packed.value, buffers_.projected);
  backend_.gate_by_keys({.key = wide.as<float>(),
                         .stream = other.as<float>(),
                         .value = buffers_.projected.as<float>(),
                         .scale = 1.0f / std::sqrt(static_cast<float>(width)),
                         .floor = kLeastAgreement,
                         .rows = rows(),
                         .streams = config_.streams,
                         .width = width,
                         .out = values.as<float>()});
  copy(values.as<float>(), view(wide.as<float>(), all_width()));
  normalize_wide(packed.conv_norm, wide);
  for (const SlotRun& run : slot_runs(batch(), states != nullptr))
    backend_.causal_conv(
        {.x = {wide.as<float>(), all_width()},
         .weight = packed.conv_weight.get(),
         .silu = true,
         .segments = run.segments,
         .channels = all_width(),
         .kernel = config_.ngrams.convolved_rows(),
         .state = states ? states->of(&LayerStates::ngrams, run.first_slot) : nullptr,
         .out = other.as<float>()});
  backend_.add({.x = other.as<float>(), .count = rows() * all_width(), .out = values.as<float>()});
  for (int64_t i = 0; i < config_.streams; ++i) {
    float* const plane = buffers_.projected.as<float>();
    backend_.copy_heads({.x = stream_of(values, i), .out = view(plane, width), .width = width});
    backend_.add({.x = plane,
                  .count = stream_size(),
                  .out = buffers_.predicted.as<float>() + i * stream_size()});
  }
}

}  // namespace kvcal
