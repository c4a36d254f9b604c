#include "model/kv_cache.h"

#include <cmath>

#include "backend/upload.h"

namespace kvcal {
namespace {

/// One float a KV head, from one value or as many.
std::vector<float> per_head(const std::vector<Scale>& scales, int64_t heads, int64_t layer,
                            std::string_view what) {
  if (scales.size() != 1 && scales.size() != static_cast<size_t>(heads))
    fail("layer ", layer, " has ", scales.size(), " values of ", what, ", expected 1 or ", heads);
  std::vector<float> result;
  for (int64_t head = 0; head < heads; ++head) {
    const float value = scales[scales.size() == 1 ? 0 : static_cast<size_t>(head)].value;
    if (!std::isfinite(value) || value <= 0.0f)
      fail("layer ", layer, ": ", what, " is ", value, ", expected a positive number");
    result.push_back(value);
  }
  return result;
}

RecurrentState new_state(const RecurrentConfig& config, Backend& backend) {
  const auto floats = [&](int64_t count) {
    Buffer buffer = backend.allocate(static_cast<size_t>(count) * sizeof(float));
    backend.fill_zero(buffer.data(), buffer.size());
    return buffer;
  };
  return {.convolution = floats((config.kernel - 1) * config.channels),
          .scan = floats(config.heads * config.head_dim * config.state_dim)};
}

}  // namespace

KvDType unquantized_cache_dtype(const ModelConfig& config) {
  return config.dtype == "float32"    ? KvDType::kFloat32
         : config.dtype == "bfloat16" ? KvDType::kBFloat16
                                      : KvDType::kFloat16;
}

KvCache::KvCache(const ModelConfig& config, Backend& backend, KvDType dtype,
                 const std::vector<LayerKvScales>& scales, int64_t capacity)
    : backend_(backend), dtype_(dtype), capacity_(capacity) {
  if (is_fp8(dtype) && scales.size() != static_cast<size_t>(config.num_hidden_layers))
    fail("an ", name_of(dtype), " cache needs scales for ", config.num_hidden_layers,
         " layers, found ", scales.size());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    Layer& entry = layers_.emplace_back();
    if (!config.has_attention(layer)) {
      if (config.layers[static_cast<size_t>(layer)].has_recurrence)
        entry.state = new_state(config.recurrent, backend);
      continue;
    }
    const bool is_ignored = is_fp8(dtype) && scales[static_cast<size_t>(layer)].ignored;
    entry.dtype = is_ignored ? unquantized_cache_dtype(config) : dtype;
    const auto row_bytes = [&](int64_t dim) {
      return static_cast<size_t>(config.cache_heads() * dim * bytes_per_element(entry.dtype));
    };
    entry.k_row_bytes = row_bytes(config.cache_k_dim());
    entry.v_row_bytes = row_bytes(config.cache_v_dim());
    entry.k = backend.allocate(static_cast<size_t>(capacity) * entry.k_row_bytes);
    entry.v = backend.allocate(static_cast<size_t>(capacity) * entry.v_row_bytes);
    if (!is_fp8(entry.dtype)) continue;
    const LayerKvScales& layer_scales = scales[static_cast<size_t>(layer)];
    entry.k_scales =
        upload<float>(per_head(layer_scales.k, config.cache_heads(), layer, "k_scale"), backend);
    entry.v_scales =
        upload<float>(per_head(layer_scales.v, config.cache_heads(), layer, "v_scale"), backend);
    if (dtype == KvDType::kFp8E4m3 && !layer_scales.q.empty())
      entry.q_scales = upload<float>(
          per_head(layer_scales.q, config.num_attention_heads, layer, "q_scale"), backend);
  }
}

void KvCache::clear() {
  length_ = 0;
  for (Layer& layer : layers_)
    for (Buffer* state : {&layer.state.convolution, &layer.state.scan})
      if (state->size() > 0) backend_.fill_zero(state->data(), state->size());
}

void KvCache::append(int64_t layer, const LayerRunner::KeysValues& kv, const int64_t* first_row) {
  if (length_ + kv.k.tokens > capacity_)
    fail("the KV cache holds ", capacity_, " tokens, ", length_ + kv.k.tokens, " are needed");
  const Layer& entry = layers_[static_cast<size_t>(layer)];
  const size_t before = first_row ? 0 : static_cast<size_t>(length_);
  EnterCacheArgs args = kv.entry();
  args.k.dtype = args.v.dtype = entry.dtype;
  args.k.scales = entry.k_scales.as<float>();
  args.v.scales = entry.v_scales.as<float>();
  args.k.out = entry.k.data() + before * entry.k_row_bytes;
  args.v.out = entry.v.data() + before * entry.v_row_bytes;
  args.first_row = first_row;
  backend_.enter_cache(args);
}

std::vector<uintptr_t> KvCache::places() const {
  std::vector<uintptr_t> places{static_cast<uintptr_t>(capacity_)};
  for (const Layer& layer : layers_) {
    places.push_back(static_cast<uintptr_t>(layer.dtype));
    for (const Buffer* buffer : {&layer.k, &layer.v, &layer.k_scales, &layer.v_scales,
                                 &layer.q_scales, &layer.state.convolution, &layer.state.scan})
      places.push_back(reinterpret_cast<uintptr_t>(buffer->data()));
  }
  return places;
}

KvStorage KvCache::storage(int64_t layer) const {
  const Layer& entry = layers_[static_cast<size_t>(layer)];
  return {entry.dtype,
          entry.k.data(),
          entry.v.data(),
          entry.k_scales.as<float>(),
          entry.v_scales.as<float>(),
          entry.q_scales.as<float>()};
}

void KvCache::advance(int64_t count) {
  length_ += count;
}

}  // namespace kvcal
