// What goes from layer to layer in LayerwiseForward: the residual stream, K and V that later layers
// read, and the layers' own inputs; and from pass to pass of one: K, V and their input.
#include <algorithm>
#include <cstring>

#include "core/interrupt.h"
#include "forward/embedding.h"
#include "forward/layerwise.h"

namespace kvcal {

std::vector<LayerwiseForward::Plane> LayerwiseForward::planes_of(const ModelConfig& config,
                                                                 int64_t longest_sample) {
  // One plane holds one stream of all tokens, as LayerRunner expects them.
  std::vector<Plane> planes;
  for (int64_t stream = 0; stream < config.streams; ++stream)
    planes.push_back({.first = stream * config.hidden_size, .width = config.hidden_size});
  for (const int64_t layer : config.shared_layers()) {
    const LayerCache& cache = config.cache(layer);
    for (const bool is_value : {false, true})
      planes.push_back({.layer = layer,
                        .is_value = is_value,
                        .first = planes.back().first + planes.back().width,
                        .width = cache.heads * (is_value ? cache.v_dim : cache.k_dim)});
  }
  if (const int64_t words = config.carried_words(longest_sample); words > 0)
    planes.push_back(
        {.is_selection = true, .first = planes.back().first + planes.back().width, .width = words});
  return planes;
}

const LayerwiseForward::Plane& LayerwiseForward::plane_of(int64_t layer, bool is_value) const {
  const auto found = std::ranges::find_if(planes_, [&](const Plane& plane) {
    return plane.layer == layer && plane.is_value == is_value;
  });
  KVCAL_CHECK(found != planes_.end());
  return *found;
}

void LayerwiseForward::keep_shared(int64_t layer, const SampleBatch& batch,
                                   const KvStorage& storage, float* hidden) {
  for (const Plane& plane : planes_) {
    if (plane.layer != layer) continue;
    const LayerCache& cache = config_.cache(layer);
    backend_.load_kv({.x = plane.is_value ? storage.v : storage.k,
                      .dtype = storage.dtype,
                      .scales = plane.is_value ? storage.v_scales : storage.k_scales,
                      .rows = batch.tokens.num_tokens,
                      .heads = cache.heads,
                      .head_dim = plane.width / cache.heads,
                      .out_type = ComputeType::kFloat32,
                      .out = hidden + plane.first * batch.tokens.num_tokens});
  }
}

KvStorage LayerwiseForward::kept(int64_t layer, const SampleBatch& batch, KvStorage storage,
                                 float* hidden) const {
  const int64_t source = config_.layer(layer).cache_layer, tokens = batch.tokens.num_tokens;
  storage.dtype = KvDType::kFloat32;
  storage.k = hidden + plane_of(source, false).first * tokens;
  storage.v = hidden + plane_of(source, true).first * tokens;
  return storage;
}

KvStorage LayerwiseForward::with_selection(const SampleBatch& batch, KvStorage storage,
                                           float* hidden) const {
  const Plane& last = planes_.back();
  if (!last.is_selection) return storage;
  storage.selection = reinterpret_cast<uint32_t*>(hidden + last.first * batch.tokens.num_tokens);
  storage.selection_words = last.width;
  return storage;
}

void LayerwiseForward::copy_planes(const SampleBatch& batch, float* planes, float* by_sample,
                                   bool to_samples) const {
  for (const Segment& segment : batch.tokens.segments)
    for (const Plane& plane : planes_) {
      float* const in_plane =
          planes + plane.first * batch.tokens.num_tokens + segment.q_begin * plane.width;
      const auto count = static_cast<size_t>(segment.q_count * plane.width);
      std::memcpy(to_samples ? by_sample : in_plane, to_samples ? in_plane : by_sample,
                  count * sizeof(float));
      by_sample += count;
    }
}

template <class Body>
void LayerwiseForward::for_each_sample(const SampleBatch& batch, float* hidden,
                                       const Body& body) const {
  const int64_t width = config_.carried_width(longest_sample_);
  int64_t sample = batch.first_sample;
  for (const Segment& segment : batch.tokens.segments)
    body(sample++,
         std::span(hidden + segment.q_begin * width, static_cast<size_t>(segment.q_count * width)));
}

void LayerwiseForward::release_hidden(const SampleBatch& batch) {
  if (hidden_user_)
    for_each_sample(batch, nullptr, [&](int64_t sample, auto) { hidden_user_->release(sample); });
}

void LayerwiseForward::show_hidden(const SampleBatch& batch, float* hidden) {
  if (!hidden_sink_) return;
  hidden_user_ = hidden_sink_;
  const bool is_one_plane = planes_.size() == 1;
  // Rows in a scratch file count as the process's memory while they are read.
  if (backend_.is_host() && hidden_->are_in_backend() && is_one_plane)
    return for_each_sample(batch, hidden, [&](int64_t sample, std::span<float> rows) {
      hidden_sink_->put(sample, rows, nullptr);
    });
  const auto count =
      static_cast<size_t>(batch.tokens.num_tokens * config_.carried_width(longest_sample_));
  auto copy = std::make_shared<std::vector<float>>(count);
  backend_.copy_out(reinterpret_cast<const std::byte*>(hidden),
                    std::as_writable_bytes(std::span(*copy)));
  if (!is_one_plane) {
    const auto by_sample = std::make_shared<std::vector<float>>(count);
    copy_planes(batch, copy->data(), by_sample->data(), true);
    copy = by_sample;
  }
  for_each_sample(batch, copy->data(), [&](int64_t sample, std::span<float> rows) {
    hidden_sink_->put(sample, rows, copy);
  });
}

void LayerwiseForward::restore_hidden(int64_t next_layer, const HiddenSource& source) {
  KVCAL_CHECK(layer_ < 0 && advanced_layers_ == 0);
  hidden_->walk(HiddenStates::Access::kWrite, [&](size_t index, float* hidden) {
    throw_if_interrupted();
    const SampleBatch& batch = batches_[index];
    std::vector<float> rows(
        static_cast<size_t>(batch.tokens.num_tokens * config_.carried_width(longest_sample_)));
    for_each_sample(batch, rows.data(), source);
    if (planes_.size() > 1) {
      std::vector<float> planes(rows.size());
      copy_planes(batch, planes.data(), rows.data(), false);
      rows = std::move(planes);
    }
    backend_.copy_in(std::as_bytes(std::span(rows)), reinterpret_cast<std::byte*>(hidden));
  });
  advanced_layers_ = next_layer;
}

LayerRunner::Kept* LayerwiseForward::kept_of(size_t batch, const Pass& pass) {
  if (batch == kept_.size() && pass.keeps && runner_->can_keep()) {
    const int64_t tokens = batches_[batch].tokens.num_tokens;
    const uint64_t bytes = runner_->kept_bytes(tokens);
    if (bytes > room_to_keep_) return nullptr;
    kept_.push_back(runner_->make_kept(tokens));
    room_to_keep_ -= bytes;
  }
  if (batch >= kept_.size()) return nullptr;
  LayerRunner::Kept& kept = kept_[batch];
  return pass.keeps || kept.layer == layer_ ? &kept : nullptr;
}

LayerRunner::KeysValues LayerwiseForward::keys_values(const PackedLayer& layer,
                                                      const BatchInput& input, const Pass& pass,
                                                      LayerRunner::Kept* kept) {
  const int64_t index = layer_;
  if (kept && kept->layer == index && !pass.keeps) {
    const LayerRunner::KeysValues made = runner_->keys_values_of(*kept, input.tokens);
    if (pass.finishes) kept->layer = -1;  // finish writes over what it reads
    return made;
  }
  const LayerRunner::KeysValues made =
      runner_->keys_values(layer, index, input.hidden, input.tokens, *ropes_);
  if (kept) {
    kept->made = made;
    kept->layer = index;
  }
  return made;
}

void LayerwiseForward::keep_ids(std::span<const std::span<const TokenId>> samples) {
  for (SampleBatch& batch : batches_)
    for (size_t i = 0; i < batch.tokens.segments.size(); ++i) {
      const auto sample = samples[static_cast<size_t>(batch.first_sample) + i];
      batch.tokens.ids.insert(batch.tokens.ids.end(), sample.begin(), sample.end());
    }
}

void LayerwiseForward::give_inputs(int64_t layer, const SampleBatch& batch) {
  if (!config_.has_layer_inputs) return;
  const std::vector<int32_t> no_positions(batch.tokens.ids.size(), 0);
  embed(batch.tokens.ids, no_positions, embedded_.as<float>());
  weights_.drop(Role::kEmbedding);
  embed_layer_input(config_, weights_, layer, batch.tokens.ids, backend_, input_rows_.as<float>());
  runner_->take_inputs({.embedded = embedded_.as<float>(), .rows = input_rows_.as<float>()});
}

}  // namespace kvcal
