#include "forward/layer_runner.h"

#include "core/error.h"
#include "family/architecture.h"

namespace kvcal {

LayerRunner::LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type,
                         int64_t max_tokens)
    : LayerContextHolder{{.config = config,
                          .backend = backend,
                          .type = type,
                          .most_rows = max_tokens,
                          .buffers = {config, backend, type}}},
      LayerPart(held_context),
      attention_(held_context),
      mixer_(held_context),
      feed_forward_(held_context),
      streams_(held_context),
      connections_(held_context),
      gated_streams_(held_context),
      sums_(held_context) {
  buffers_.reserve(Reserved::kBatch, max_tokens);
}

void LayerRunner::begin(const PackedLayer& layer, int64_t index, const TokenBatch& batch) {
  context_.layer = &layer;
  context_.layer_index = index;
  context_.batch = &batch;
}

const float* LayerRunner::enter(const float* hidden) {
  if (config_.connections.exist()) return connections_.enter_attention(hidden);
  if (config_.attends_residuals) return sums_.attend_before_attention(hidden);
  return config_.streams > 1 ? streams_.predict(hidden) : hidden;
}

KeysValues LayerRunner::keys_values(const float* hidden, const LayerStates* states) {
  if (layer().attention_mix.up.matrix) {
    gated_streams_.begin(hidden, inputs_, states);
    gated_streams_.mix_for(Role::kQuery);
  } else {
    normalize_input(Role::kQuery, enter(hidden), layer().input_norm);
  }
  return own().has_own_cache ? attention_.keys_values(states) : KeysValues{};
}

void LayerRunner::finish(float* all_hidden, const KvView& storage, const ObservedQueries& seen) {
  if (layer().attention_mix.up.matrix) return finish_gated(all_hidden, storage, seen);
  if (config_.attends_residuals) return finish_attended(all_hidden, storage, seen);
  const bool has_attention = own().has_attention, is_connected = config_.connections.exist();
  if (is_connected && !has_attention) enter(all_hidden);
  float* hidden = is_connected          ? connections_.attention_output()
                  : config_.streams > 1 ? streams_.begin()
                                        : all_hidden;
  const float* const input = is_connected ? connections_.input() : hidden;
  if (layer().laurel.up.matrix) streams_.make_laurel(hidden);
  if (has_attention) attention_.run(input, storage, seen);
  // With a parallel residual both read the layer's input, so the MLP runs before anything is added.
  if (config_.parallel_residual) feed_forward_.run(input, hidden, false, storage.states);
  if (own().has_recurrence) mixer_.run(input, storage.states);
  if (config_.norms_stream) {
    normalize_stream(hidden, has_attention ? layer().input_norm : layer().mixer_norm);
    scale_stream(hidden, has_attention ? config_.attention_stream_multiplier
                                       : config_.mixer_stream_multiplier);
  }
  bool is_normed = false;
  if (own().has_recurrence)
    is_normed = add_mixed(buffers_.mixed, layer().recurrence.out, config_.mixer_output_multiplier,
                          hidden, !has_attention, storage.states);
  if (has_attention)
    is_normed = add_mixed(buffers_.attended, layer().output, config_.attention_output_multiplier,
                          hidden, true, storage.states);
  if (layer().laurel.up.matrix) streams_.add_laurel(hidden);
  if (is_connected) {
    connections_.leave_attention();
    hidden = connections_.mlp_output();
  }
  if (!config_.parallel_residual) feed_forward_.run(input, hidden, is_normed, storage.states);
  if (is_connected) return connections_.leave_mlp(all_hidden);
  if (config_.streams > 1) streams_.correct(all_hidden);
  if (layer().input.gate.matrix) streams_.add_layer_input(inputs_, all_hidden);
  if (!layer().streams.outputs.empty()) streams_.join(all_hidden);
  scale_stream(hidden, layer().scalar);
  normalize_stream(hidden, layer().stream_norm);
}

void LayerRunner::finish_gated(float* hidden, const KvView& storage, const ObservedQueries& seen) {
  KVCAL_CHECK(own().has_attention != own().has_recurrence);
  if (own().has_attention) {
    attention_.run(nullptr, storage, seen);
  } else {
    gated_streams_.begin(hidden, inputs_, storage.states);
    gated_streams_.mix_for(Role::kMixerIn);
    mixer_.run(nullptr, storage.states);
  }
  add_attended(gated_streams_.output());
  gated_streams_.add_output();
  gated_streams_.mix_for_mlp(feed_forward_.input_slot());
  float* const fed = gated_streams_.output();
  feed_forward_.run(fed, fed, true, storage.states);
  gated_streams_.add_output(hidden);
  if (layer().final_mix.up.matrix) gated_streams_.join(hidden);
}

void LayerRunner::add_attended(float* hidden) {
  const Branch way = branch(layer().attention_output_norm);
  if (own().has_attention)
    add_projected(buffers_.attended, layer().output, way, hidden);
  else
    add_projected(buffers_.mixed, layer().recurrence.out, way, hidden);
}

void LayerRunner::finish_attended(float* hidden, const KvView& storage,
                                  const ObservedQueries& seen) {
  KVCAL_CHECK(own().has_attention != own().has_recurrence);
  if (own().has_attention)
    attention_.run(sums_.attended(), storage, seen);
  else
    mixer_.run(enter(hidden), storage.states);
  sums_.begin_layer(hidden);
  add_attended(hidden);
  feed_forward_.run(sums_.attend_before_mlp(hidden), hidden, false, storage.states);
  sums_.end_layer(hidden);
}

bool LayerRunner::add_mixed(const Buffer& x, const PackedLinear& linear, float multiplier,
                            float* hidden, bool is_last, const LayerStates* states) {
  const Branch way = branch(layer().attention_output_norm, multiplier);
  const PackedNorm& next = layer().mlp_norm;
  KVCAL_CHECK(is_last || (!config_.parallel_residual && !way.norm.exists()));
  const bool has_next = is_last && config_.has_mlp_norm && !config_.parallel_residual &&
                        !config_.norms_stream && !config_.connections.exist() &&
                        !layer().laurel.up.matrix && feed_forward_.exists() && next.exists();
  const PackedValues& convolution = layer().convolutions.attention_output;
  const bool convolves = convolution.exists();
  if (!convolves && (way.adds_directly() || !has_next)) {
    add_projected(x, linear, way, hidden);
    return false;
  }
  project(x, linear, buffers_.projected);
  if (convolves)
    convolve(buffers_.projected, convolution, config_.hidden_size, states,
             &LayerStates::attention_output, buffers_.short_convolved);
  const Buffer& output = convolves ? buffers_.short_convolved : buffers_.projected;
  if (!has_next) {
    add_output(output, way, hidden);
    return false;
  }
  ResidualNormArgs args = output_args(output, way, hidden);
  args.next_weight = next.weight.get();
  args.next_bias = next.bias.get();
  args.out_type = type_;
  args.out = buffers_.normed.data();
  args.seen = feed_forward_.input_slot();
  backend_.residual_norm(args);
  return true;
}

void LayerRunner::make_head_input(const PackedHeadInput& input, const float* hidden,
                                  const TokenBatch& batch) {
  context_.batch = &batch;
  if (!input.projection.matrix) return normalize_input(Role::kLmHead, hidden, input.norm);
  normalize(hidden, input.norm, type_, buffers_.normed.data());
  project(buffers_.normed, input.projection, buffers_.projected);
  convert_input(Role::kLmHead, buffers_.projected.as<float>(), config_.embedding_size,
                buffers_.normed);
}

size_t LayerRunner::bytes_of_tokens(const Buffer& buffer, int64_t tokens) const {
  return buffer.size() / static_cast<size_t>(context_.most_rows) * static_cast<size_t>(tokens);
}

uint64_t LayerRunner::kept_bytes(int64_t tokens) const {
  return bytes_of_tokens(buffers_.normed, tokens) + bytes_of_tokens(buffers_.key_value, tokens);
}

LayerRunner::BatchKeysValues LayerRunner::make_kept(int64_t tokens) {
  BatchKeysValues kept;
  kept.normed = backend_.allocate(bytes_of_tokens(buffers_.normed, tokens));
  kept.key_value = backend_.allocate(bytes_of_tokens(buffers_.key_value, tokens));
  return kept;
}

void LayerRunner::exchange(BatchKeysValues* kept) {
  if (!kept) return;
  std::swap(buffers_.normed, kept->normed);
  std::swap(buffers_.key_value, kept->key_value);
}

KeysValues LayerRunner::keys_values_of(const BatchKeysValues& kept) {
  fold(slot_of(Role::kQuery), buffers_.normed.data(), rows() * config_.hidden_size, type_);
  observe(Role::kQuery, buffers_.normed, config_.hidden_size);
  return kept.made;
}

}  // namespace kvcal
