#include "forward/kv_cache.h"

#include "backend/backend.h"
#include "quant/scale.h"

namespace kvcal {
namespace {

/// One float per KV head, from one value or as many.
std::vector<float> per_head(const std::vector<Scale>& scales, int64_t heads, int64_t layer,
                            std::string_view what) {
  if (scales.size() != 1 && scales.size() != static_cast<size_t>(heads))
    fail("layer ", layer, " has ", scales.size(), " values of ", what, ", expected 1 or ", heads);
  std::vector<float> result;
  for (int64_t head = 0; head < heads; ++head) {
    const float value = scales[scales.size() == 1 ? 0 : static_cast<size_t>(head)].value;
    if (!is_usable({value}))
      fail("layer ", layer, ": ", what, " is ", value, ", expected ", kUsableScale);
    result.push_back(value);
  }
  return result;
}

// Floats of a recurrent layer's states in one slot.
int64_t convolution_floats(const RecurrentConfig& config) {
  return (config.kernel - 1) * config.channels;
}
int64_t scan_floats(const RecurrentConfig& config) {
  return config.heads * config.head_dim * config.state_dim;
}

RecurrentState new_state(const RecurrentConfig& config, Backend& backend, int64_t slots) {
  const auto floats = [&](int64_t count) {
    Buffer buffer = backend.allocate(static_cast<size_t>(slots * count) * sizeof(float));
    backend.fill_zero(buffer.data(), buffer.size());
    return buffer;
  };
  return {.convolution = floats(convolution_floats(config)),
          .scan = floats(scan_floats(config)),
          .slots = slots};
}

void check_scales(const ModelConfig& config, const CacheType& type,
                  const std::vector<LayerKvScales>& scales) {
  if (needs_scales(type) && scales.size() != static_cast<size_t>(config.num_hidden_layers))
    fail("an ", name_of(type), " cache needs scales for ", config.num_hidden_layers,
         " layers, found ", scales.size());
}

CacheType type_of_layer(const ModelConfig& config, const CacheType& type,
                        const std::vector<LayerKvScales>& scales, int64_t layer) {
  const auto index = static_cast<size_t>(layer);
  const bool is_ignored = is_quantized(type) && index < scales.size() && scales[index].ignored;
  return is_ignored ? unquantized_cache_dtype(config) : type;
}

/// Bytes of a layer's K and V of one token in our memory.
uint64_t memory_per_token(const ModelConfig& config, const CacheType& type,
                          const std::vector<LayerKvScales>& scales, int64_t layer) {
  if (!config.has_own_cache(layer)) return 0;
  const KvDType dtype = type_of_layer(config, type, scales, layer).dtype;
  return static_cast<uint64_t>(config.cache(layer).width() * bytes_per_element(dtype));
}

size_t row_bytes(int64_t elements, KvDType dtype) {
  return static_cast<size_t>(elements * bytes_per_element(dtype));
}

/// Bytes of an indexer's key; 0 where no sequence is long enough for a selection.
size_t indexer_row_bytes(const ModelConfig& config, int64_t layer, int64_t capacity) {
  const bool is_kept = config.layer(layer).has_indexer && config.selects_keys(capacity);
  return is_kept ? static_cast<size_t>(config.indexer.head_dim) * sizeof(float) : 0;
}

/// Consecutive tokens of the input of a cache.
EnterCacheArgs rows_of(EnterCacheArgs args, int64_t first, int64_t count) {
  for (HeadsView* view : {&args.k.x, &args.v.x, &args.rope.x}) {
    if (!view->data) continue;
    view->data += first * view->row_stride;
    view->tokens = count;
  }
  if (args.rope.positions) args.rope.positions += first;
  return args;
}

}  // namespace

KvDType unquantized_cache_dtype(const ModelConfig& config) {
  return config.dtype == "float32"    ? KvDType::kFloat32
         : config.dtype == "bfloat16" ? KvDType::kBFloat16
                                      : KvDType::kFloat16;
}

std::string head_problem(CacheFormat format, const ModelConfig& config, int64_t layer) {
  const std::string name(name_of(format));
  if (config.latent.latent_rank > 0)
    return "the model keeps a latent (MLA), for which engines have no " + name + " cache";
  const LayerCache& cache = config.cache(layer);
  const int64_t multiple = layout_of(format).multiple;
  for (const int64_t head_dim : {cache.k_dim, cache.v_dim})
    if (head_dim % multiple != 0)
      return "layer " + std::to_string(layer) + " has heads of " + std::to_string(head_dim) +
             ", an " + name + " cache needs a multiple of " + std::to_string(multiple);
  return {};
}

KvCache::KvCache(const ModelConfig& config, Backend& backend, const CacheType& type,
                 const std::vector<LayerKvScales>& scales, int64_t capacity, int64_t slots)
    : backend_(backend), type_(type), capacity_(capacity), lengths_(static_cast<size_t>(slots), 0) {
  check_scales(config, type, scales);
  const auto rows = static_cast<size_t>(slots * capacity);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    Layer& entry = layers_.emplace_back();
    if (config.layer(layer).has_recurrence)
      entry.state = new_state(config.recurrent, backend, slots);
    if (!config.has_attention(layer)) continue;
    entry.type = type_of_layer(config, type, scales, layer);
    entry.source = static_cast<size_t>(config.layer(layer).cache_layer);
    if (entry.type == KvDType::kFp8E4m3 && !scales[static_cast<size_t>(layer)].q.empty())
      entry.q_scales = upload<float>(per_head(scales[static_cast<size_t>(layer)].q,
                                              config.attention(layer).heads, layer, "q_scale"),
                                     backend);
    if (entry.type == KvDType::kFp8E4m3 && scales[static_cast<size_t>(layer)].weights)
      entry.weight_scale = scales[static_cast<size_t>(layer)].weights->value;
    if (!config.has_own_cache(layer)) continue;
    if (entry.type.format)
      if (const auto problem = head_problem(*entry.type.format, config, layer); !problem.empty())
        fail(problem);
    const LayerCache& cache = config.cache(layer);
    entry.k_row_bytes = row_bytes(cache.heads * cache.k_dim, entry.type.dtype);
    entry.v_row_bytes = row_bytes(cache.heads * cache.v_dim, entry.type.dtype);
    entry.k = backend.allocate(rows * entry.k_row_bytes);
    entry.v = backend.allocate(rows * entry.v_row_bytes);
    if (const size_t bytes = indexer_row_bytes(config, layer, capacity); bytes > 0)
      entry.indexer_keys = backend.allocate(rows * bytes);
    if (!needs_scales(entry.type)) continue;
    const LayerKvScales& layer_scales = scales[static_cast<size_t>(layer)];
    entry.k_scales =
        upload<float>(per_head(layer_scales.k, cache.heads, layer, "k_scale"), backend);
    entry.v_scales =
        upload<float>(per_head(layer_scales.v, cache.heads, layer, "v_scale"), backend);
  }
}

uint64_t KvCache::bytes_per_token(const ModelConfig& config, const CacheType& type,
                                  const std::vector<LayerKvScales>& scales) {
  check_scales(config, type, scales);
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.has_own_cache(layer)) continue;
    const CacheType stored = type_of_layer(config, type, scales, layer);
    const LayerCache& cache = config.cache(layer);
    bytes +=
        cache.heads * (bytes_of_head(stored, cache.k_dim) + bytes_of_head(stored, cache.v_dim));
  }
  return static_cast<uint64_t>(bytes);
}

uint64_t KvCache::bytes_per_slot(const ModelConfig& config, const CacheType& type,
                                 const std::vector<LayerKvScales>& scales, int64_t capacity) {
  check_scales(config, type, scales);
  uint64_t bytes = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    bytes += static_cast<uint64_t>(capacity) * memory_per_token(config, type, scales, layer);
    bytes += static_cast<uint64_t>(capacity) * indexer_row_bytes(config, layer, capacity);
    if (config.layer(layer).has_recurrence)
      bytes += sizeof(float) * static_cast<uint64_t>(convolution_floats(config.recurrent) +
                                                     scan_floats(config.recurrent));
  }
  return bytes;
}

void KvCache::clear(int64_t slot) {
  lengths_[static_cast<size_t>(slot)] = 0;
  for (Layer& layer : layers_)
    for (Buffer* state : {&layer.state.convolution, &layer.state.scan}) {
      const size_t bytes = state->size() / lengths_.size();
      if (bytes > 0) backend_.fill_zero(state->data() + static_cast<size_t>(slot) * bytes, bytes);
    }
}

Segment KvCache::next_segment(int64_t slot, int64_t q_begin, int64_t count) const {
  return {.q_begin = q_begin,
          .q_count = count,
          .kv_begin = slot * capacity_,
          .kv_count = length(slot) + count};
}

void KvCache::append(int64_t layer, const KeysValues& kv, const TokenBatch& batch) {
  const Layer& entry = layers_[static_cast<size_t>(layer)];
  EnterCacheArgs all = kv.entry();
  all.k.dtype = all.v.dtype = entry.type.dtype;
  all.k.scales = entry.k_scales.as<float>();
  all.v.scales = entry.v_scales.as<float>();
  all.first_row = batch.first_row;
  if (entry.type.format) simulate(*entry.type.format, all);
  for (const Segment& segment : batch.segments) {
    KVCAL_CHECK(segment.kv_count <= capacity_);
    const int64_t row = batch.first_row ? 0 : segment.kv_begin + segment.kv_count - segment.q_count;
    EnterCacheArgs args = rows_of(all, segment.q_begin, segment.q_count);
    args.k.out = entry.k.data() + static_cast<size_t>(row) * entry.k_row_bytes;
    args.v.out = entry.v.data() + static_cast<size_t>(row) * entry.v_row_bytes;
    backend_.enter_cache(args);
  }
}

void KvCache::simulate(CacheFormat format, EnterCacheArgs& args) {
  if (args.rope.x.data) backend_.rope(args.rope);
  args.rope = {};
  for (CacheSide* side : {&args.k, &args.v}) {
    backend_.simulate_cache({.x = side->x, .format = format, .scales = side->scales});
    side->scales = nullptr;
  }
}

std::vector<uintptr_t> KvCache::places() const {
  std::vector<uintptr_t> places{static_cast<uintptr_t>(capacity_)};
  for (const Layer& layer : layers_) {
    places.push_back(static_cast<uintptr_t>(layer.type.dtype));
    places.push_back(layer.type.format ? 1 + static_cast<uintptr_t>(*layer.type.format) : 0);
    places.push_back(bits_of(layer.weight_scale));
    for (const Buffer* buffer :
         {&layer.k, &layer.v, &layer.k_scales, &layer.v_scales, &layer.q_scales,
          &layer.indexer_keys, &layer.state.convolution, &layer.state.scan})
      places.push_back(reinterpret_cast<uintptr_t>(buffer->data()));
  }
  return places;
}

KvView KvCache::storage(int64_t layer) const {
  const Layer& entry = layers_[static_cast<size_t>(layer)];
  const Layer& holder = layers_[entry.source];
  return {.dtype = holder.type.dtype,
          .k = holder.k.data(),
          .v = holder.v.data(),
          .k_scales = holder.k_scales.as<float>(),
          .v_scales = holder.v_scales.as<float>(),
          .q_scales = entry.q_scales.as<float>(),
          .q_dtype = entry.type.dtype,
          .weight_scale = entry.weight_scale,
          .indexer_keys = entry.indexer_keys.as<float>()};
}

void KvCache::advance(int64_t count, int64_t slot) {
  lengths_[static_cast<size_t>(slot)] += count;
}

}  // namespace kvcal
