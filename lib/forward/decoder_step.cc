#include "forward/decoder_step.h"

#include <algorithm>
#include <cstring>

#include "family/architecture.h"

namespace kvcal {
namespace {

/// Caches that are stepped in turn: two when texts are compared.
constexpr size_t kMostRecordings = 4;
constexpr size_t kRowAt = sizeof(Segment), kPositionsAt = kRowAt + sizeof(int64_t);

}  // namespace

bool DecoderStep::can_record(const ModelConfig& config, const Backend& backend, int64_t length) {
  if (!backend.can_record() || config.architecture->has_latent_attention) return false;
  if (config.has_layer_inputs) return false;  // which the host looks up
  if (std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.is_moe; }))
    return false;
  return std::ranges::none_of(config.ropes, [&](const RopeConfig& rope) {
    return rope.type == RopeConfig::Type::kDynamic && rope_block(rope, length) != 0;
  });
}

DecoderStep::DecoderStep(const ModelConfig& config, Backend& backend, ComputeType type)
    : backend_(backend), runner_(config, backend, type, 1) {
  const auto hidden = static_cast<size_t>(config.hidden_size);
  hidden_ = backend.allocate(hidden * sizeof(float));
  normed_ = backend.allocate(hidden * bytes_of(type));
  logits_ = backend.allocate(static_cast<size_t>(config.vocab_size) * sizeof(float));
  current_ = backend.allocate(kPositionsAt + config.ropes.size() * sizeof(int32_t));
  batch_.num_tokens = 1;
  batch_.is_decoding = true;
  batch_.current_segments = current_.as<Segment>();
  batch_.first_row = reinterpret_cast<const int64_t*>(current_.data() + kRowAt);
  for (size_t rope = 0; rope < config.ropes.size(); ++rope)
    batch_.positions.push_back(reinterpret_cast<const int32_t*>(current_.data() + kPositionsAt) +
                               rope);
}

void DecoderStep::place_token(const KvCache& cache, const RopeTables& ropes) {
  const int64_t before = cache.length(), after = before + 1;
  const Segment segment{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = after};
  std::vector<std::byte> current(current_.size());
  std::memcpy(current.data(), &segment, sizeof segment);
  std::memcpy(current.data() + kRowAt, &before, sizeof before);
  for (int64_t rope = 0; rope < ropes.count(); ++rope) {
    const int32_t row = ropes.table(rope).row(before, after);
    std::memcpy(current.data() + kPositionsAt + static_cast<size_t>(rope) * sizeof row, &row,
                sizeof row);
  }
  backend_.copy_in(current, current_.data());
}

DecoderStep::Places DecoderStep::places_of(const KvCache& cache, const RopeTables& ropes) {
  Places places = cache.places();
  for (int64_t rope = 0; rope < ropes.count(); ++rope)
    for (const float* table : {ropes.table(rope).cos(), ropes.table(rope).sin(),
                               ropes.table(rope).query_cos(), ropes.table(rope).query_sin()})
      places.push_back(reinterpret_cast<uintptr_t>(table));
  return places;
}

void DecoderStep::run(const KvCache& cache, const RopeTables& ropes, const Body& body) {
  place_token(cache, ropes);
  // A recording reads the segment's size as its upper bound, the capacity.
  batch_.segments = {{.q_begin = 0, .q_count = 1, .kv_begin = 0, .kv_count = cache.capacity()}};
  const auto step = [&] {
    body(runner_, batch_, hidden_.as<float>(), normed_.data(), logits_.as<float>());
  };
  Places places = places_of(cache, ropes);
  const auto known =
      std::ranges::find_if(recordings_, [&](const auto& one) { return one.first == places; });
  if (known == recordings_.end()) {
    if (recordings_.size() == kMostRecordings) recordings_.erase(recordings_.begin());
    recordings_.emplace_back(std::move(places), nullptr);
    return step();
  }
  if (!known->second) known->second = backend_.record(step);
  known->second->play();
}

}  // namespace kvcal
