#include "forward/kv_cache.h"

#include <algorithm>

#include "forward/engine_cache.h"

namespace kvcal {
namespace {

/// One float per KV head, from one value or as many; or one per channel, from as many, where there
/// are scales of channels.
std::vector<float> per_head(const std::vector<Scale>& scales, int64_t heads, int64_t channels,
                            int64_t layer, std::string_view what) {
  const bool is_per_channel = channels > 0 && std::ssize(scales) == channels;
  if (!is_per_channel && scales.size() != 1 && std::ssize(scales) != heads)
    fail("layer ", layer, " has ", counted(scales.size(), "value"), " of ", what,
         ", expected 1 or ", heads);
  std::vector<float> result;
  for (int64_t i = 0; i < (is_per_channel ? channels : heads); ++i) {
    const float value = scales[scales.size() == 1 ? 0 : static_cast<size_t>(i)].value;
    if (!is_usable({value}))
      fail("layer ", layer, ": ", what, " is ", value, ", expected ", kUsableScale);
    result.push_back(value);
  }
  return result;
}

/// A part of a layer's states, and its floats in one slot.
struct StatePart {
  Buffer LayerStates::*part;
  int64_t floats;
};
std::vector<StatePart> state_parts(const ModelConfig& config, int64_t layer) {
  std::vector<StatePart> parts;
  const RecurrentConfig& mixer = config.recurrent;
  if (config.layer(layer).has_recurrence) {
    parts.push_back({&LayerStates::convolution, (mixer.kernel - 1) * mixer.channels});
    parts.push_back({&LayerStates::scan, mixer.heads * mixer.head_dim * mixer.state_dim});
  }
  if (config.layer(layer).has_ngrams)
    parts.push_back({&LayerStates::ngrams,
                     (config.ngrams.convolved_rows() - 1) * config.streams * config.hidden_size});
  if (config.short_kernel > 0) {
    const int64_t rows = config.short_kernel - 1;
    const AttentionSizes& sizes = config.attention(layer);
    parts.push_back({&LayerStates::key_value, rows * (sizes.key_width() + sizes.value_width())});
    parts.push_back({&LayerStates::attention_output, rows * config.hidden_size});
    parts.push_back({&LayerStates::mlp_output, rows * config.hidden_size});
  }
  return parts;
}

LayerStates new_states(const ModelConfig& config, int64_t layer, Backend& backend, int64_t slots) {
  LayerStates states{.slots = slots};
  for (const StatePart& part : state_parts(config, layer))
    states.*part.part = zeros<float>(backend, slots * part.floats);
  return states;
}

void check_scales(const ModelConfig& config, const CacheType& type,
                  const std::vector<LayerKvScales>& scales) {
  if (needs_scales(type) && scales.size() != static_cast<size_t>(config.num_hidden_layers))
    fail("an ", name_of(type), " cache needs scales for ",
         counted(config.num_hidden_layers, "layer"), ", found ", scales.size());
}

CacheType type_of_layer(const ModelConfig& config, const CacheType& type,
                        const std::vector<LayerKvScales>& scales, int64_t layer) {
  const auto index = static_cast<size_t>(layer);
  const bool is_ignored = is_quantized(type) && index < scales.size() && scales[index].ignored;
  return is_ignored ? unquantized_cache_dtype(config) : type;
}

/// Bytes of an indexer's key; 0 where no sequence is long enough for a selection.
size_t indexer_row_bytes(const ModelConfig& config, int64_t layer, int64_t capacity) {
  const bool is_kept = config.layer(layer).has_indexer && config.selects_keys(capacity);
  return is_kept ? static_cast<size_t>(config.indexer.head_dim) * sizeof(float) : 0;
}

/// Copies within the backend's memory; bytes that are no whole floats by the host's.
void copy_bytes(Backend& backend, const std::byte* from, std::byte* to, size_t bytes) {
  const auto is_whole = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % sizeof(float) == 0;
  };
  if (bytes == 0) return;
  if (is_whole(from) && is_whole(to) && bytes % sizeof(float) == 0) {
    // In rows, which threads divide among themselves.
    constexpr int64_t kWidth = 4096;
    const auto copy = [&](int64_t first, int64_t rows, int64_t width) {
      const auto view = [&](const std::byte* data) {
        auto* floats = reinterpret_cast<float*>(const_cast<std::byte*>(data)) + first;
        return contiguous(floats, rows, 1, width);
      };
      if (rows > 0) backend.copy_heads({.x = view(from), .out = view(to), .width = width});
    };
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    copy(0, count / kWidth, kWidth);
    copy(count / kWidth * kWidth, count % kWidth > 0 ? 1 : 0, count % kWidth);
    return;
  }
  std::vector<std::byte> host(bytes);
  backend.copy_out(from, host);
  backend.copy_in(host, to);
}

}  // namespace

KvDType unquantized_cache_dtype(const ModelConfig& config) {
  return config.dtype == "float32"    ? KvDType::kFloat32
         : config.dtype == "bfloat16" ? KvDType::kBFloat16
                                      : KvDType::kFloat16;
}

void KvBuffers::Side::join(CacheSide& args, KvDType dtype, int64_t row) const {
  args.dtype = dtype;
  args.scales = is_fp8(dtype) ? scales.as<float>() : nullptr;
  args.out = rows.data() + static_cast<size_t>(row) * row_bytes;
  args.saturated = is_fp8(dtype) ? saturated.as<uint64_t>() : nullptr;
}

void KvBuffers::reserve(const LayerCache& cache, int64_t rows, Backend& backend) {
  const auto reserve_side = [&](Side& side, int64_t head_dim) {
    side.row_bytes = static_cast<size_t>(cache.heads * head_dim * bytes_per_element(dtype));
    side.rows = backend.allocate(static_cast<size_t>(rows) * side.row_bytes);
  };
  reserve_side(k, cache.k_dim);
  reserve_side(v, cache.v_dim);
}

void KvBuffers::simulate(const HeadsView& keys, const HeadsView& values, Backend& backend) const {
  const auto simulate_side = [&](const HeadsView& x, const Side& side, bool is_value) {
    if (x.head_dim == 0) return;
    backend.simulate_cache({.x = x,
                            .format = *format,
                            .scales = side.scales.as<float>(),
                            .scale_per_channel = side.scale_per_channel,
                            .is_value = is_value,
                            .rotated = rotated,
                            .saturated = side.saturated.as<uint64_t>()});
  };
  simulate_side(keys, k, false);
  simulate_side(values, v, true);
}

KvView KvBuffers::view() const {
  return {.dtype = dtype,
          .k = k.rows.data(),
          .v = v.rows.data(),
          .k_scales = k.scales.as<float>(),
          .v_scales = v.scales.as<float>(),
          .q_scales = q_scales.as<float>(),
          .q_dtype = q_dtype,
          .q_saturated = q_saturated.as<uint64_t>()};
}

KvCache::KvCache(const ModelConfig& config, Backend& backend, const CacheType& type,
                 const std::vector<LayerKvScales>& scales, int64_t capacity, int64_t slots)
    : backend_(backend),
      type_(type),
      capacity_(capacity),
      lengths_(static_cast<size_t>(slots), 0),
      separator_(static_cast<TokenId>(config.ngrams.separator)),
      last_ids_(
          lengths_.size(),
          std::vector<TokenId>(static_cast<size_t>(std::max<int64_t>(config.ngrams.history(), 0)),
                               separator_)) {
  check_scales(config, type, scales);
  const int64_t rows = slots * capacity;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    Layer& entry = layers_.emplace_back();
    if (config.has_states(layer)) entry.states = new_states(config, layer, backend, slots);
    if (!config.has_attention(layer)) continue;
    const CacheType own = type_of_layer(config, type, scales, layer);
    const auto uploaded = [&](const std::vector<Scale>& values, int64_t heads, const char* what,
                              int64_t channels = 0) {
      return upload<float>(per_head(values, heads, channels, layer, what), backend);
    };
    static const LayerKvScales kNone;
    const LayerKvScales& of_layer = needs_scales(own) ? scales[static_cast<size_t>(layer)] : kNone;
    entry.kv.format = own.format;
    entry.kv.dtype = entry.kv.q_dtype = own.dtype;
    entry.source = static_cast<size_t>(config.layer(layer).cache_layer);
    if (own == KvDType::kFp8E4m3 && !of_layer.q.empty())
      entry.kv.q_scales = uploaded(of_layer.q, config.attention(layer).heads, "q_scale");
    if (own == KvDType::kFp8E4m3 && of_layer.weights) entry.weight_scale = of_layer.weights->value;
    if (!config.has_own_cache(layer)) continue;
    if (own.format)
      if (const auto problem = head_problem(*own.format, config, layer); !problem.empty())
        fail(problem);
    const LayerCache& cache = config.cache(layer);
    entry.kv.rotated = cached_sizes(config, layer).rotated;
    entry.kv.reserve(cache, rows, backend);
    if (const size_t bytes = indexer_row_bytes(config, layer, capacity); bytes > 0)
      entry.indexer_keys = backend.allocate(static_cast<size_t>(rows) * bytes);
    if (!needs_scales(own)) continue;
    const auto put = [&](const std::vector<Scale>& values, int64_t head_dim, const char* what,
                         KvBuffers::Side& side) {
      const int64_t channels = own.format == CacheFormat::kInt8 ? cache.heads * head_dim : 0;
      side.scales = uploaded(values, cache.heads, what, channels);
      side.scale_per_channel = channels > 0 && std::ssize(values) == channels;
    };
    put(of_layer.k, cache.k_dim, "k_scale", entry.kv.k);
    put(of_layer.v, cache.v_dim, "v_scale", entry.kv.v);
  }
}

uint64_t KvCache::bytes_per_token(const ModelConfig& config, const CacheType& type,
                                  const std::vector<LayerKvScales>& scales) {
  check_scales(config, type, scales);
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.has_own_cache(layer)) continue;
    const CacheType stored = type_of_layer(config, type, scales, layer);
    bytes += config.cache(layer).heads * bytes_of(stored, cached_sizes(config, layer));
  }
  return static_cast<uint64_t>(bytes);
}

uint64_t KvCache::bytes_per_slot(const ModelConfig& config, const CacheType& type,
                                 const std::vector<LayerKvScales>& scales, int64_t capacity) {
  check_scales(config, type, scales);
  uint64_t of_token = 0, states = 0;  // in our memory
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.has_own_cache(layer)) {
      const KvDType dtype = type_of_layer(config, type, scales, layer).dtype;
      of_token += static_cast<uint64_t>(config.cache(layer).width() * bytes_per_element(dtype));
    }
    of_token += indexer_row_bytes(config, layer, capacity);
    for (const StatePart& part : state_parts(config, layer))
      states += sizeof(float) * static_cast<uint64_t>(part.floats);
  }
  return static_cast<uint64_t>(capacity) * of_token + states;
}

void KvCache::clear(int64_t slot) {
  lengths_[static_cast<size_t>(slot)] = 0;
  std::ranges::fill(last_ids_[static_cast<size_t>(slot)], separator_);
  for (Layer& layer : layers_)
    for (Buffer LayerStates::*part : LayerStates::all_parts()) {
      Buffer& state = layer.states.*part;
      const size_t bytes = state.size() / lengths_.size();
      if (bytes > 0) backend_.fill_zero(state.data() + static_cast<size_t>(slot) * bytes, bytes);
    }
}

void KvCache::copy(int64_t from, int64_t to, int64_t tokens) {
  const auto source = static_cast<size_t>(from), target = static_cast<size_t>(to);
  const bool is_whole = tokens == lengths_[source];
  KVCAL_CHECK(tokens >= 0 && tokens <= lengths_[source]);
  KVCAL_CHECK(is_whole || last_ids_[source].empty());
  lengths_[target] = tokens;
  last_ids_[target] = last_ids_[source];
  for (Layer& layer : layers_) {
    KVCAL_CHECK(is_whole || layer.states.slots == 0);
    const auto copy_part = [&](Buffer& all, size_t bytes) {  // of a slot
      if (from != to)
        copy_bytes(backend_, all.data() + source * (all.size() / lengths_.size()),
                   all.data() + target * (all.size() / lengths_.size()), bytes);
    };
    for (Buffer* rows : {&layer.kv.k.rows, &layer.kv.v.rows, &layer.indexer_keys})
      copy_part(*rows, rows->size() / lengths_.size() / static_cast<size_t>(capacity_) *
                           static_cast<size_t>(tokens));
    for (Buffer LayerStates::*part : LayerStates::all_parts())
      copy_part(layer.states.*part, (layer.states.*part).size() / lengths_.size());
  }
}

void KvCache::append(int64_t layer, const KeysValues& kv, const TokenBatch& batch) {
  const Layer& entry = layers_[static_cast<size_t>(layer)];
  EnterCacheArgs all = kv.entry();
  all.first_row = batch.first_row;
  if (entry.kv.format) {
    if (all.rope.x.data) backend_.rope(all.rope);
    all.rope = {};
    entry.kv.simulate(all.k.x, all.v.x, backend_);
  }
  for (const Segment& segment : batch.segments) {
    KVCAL_CHECK(segment.kv_count <= capacity_);
    EnterCacheArgs args = all;
    args.k.x = part_of(all.k.x, segment.q_begin, segment.q_count);
    args.v.x = part_of(all.v.x, segment.q_begin, segment.q_count);
    if (all.rope.x.data)
      args.rope =
          part_of(all.rope, part_of(all.rope.x, segment.q_begin, segment.q_count), segment.q_begin);
    entry.kv.join(args,
                  batch.first_row ? 0 : segment.kv_begin + segment.kv_count - segment.q_count);
    backend_.enter_cache(args);
  }
}

std::vector<uintptr_t> KvCache::places() const {
  std::vector<uintptr_t> places{static_cast<uintptr_t>(capacity_)};
  for (const Layer& layer : layers_) {
    const KvBuffers& kv = layer.kv;
    places.push_back(static_cast<uintptr_t>(kv.dtype));
    places.push_back(kv.format ? 1 + static_cast<uintptr_t>(*kv.format) : 0);
    places.push_back((kv.k.scale_per_channel ? 1 : 0) + (kv.v.scale_per_channel ? 2 : 0));
    places.push_back(bits_of(layer.weight_scale));
    for (const Buffer* buffer :
         {&kv.k.rows, &kv.v.rows, &kv.k.scales, &kv.v.scales, &kv.q_scales, &layer.indexer_keys})
      places.push_back(reinterpret_cast<uintptr_t>(buffer->data()));
    for (Buffer LayerStates::*part : LayerStates::all_parts())
      places.push_back(reinterpret_cast<uintptr_t>((layer.states.*part).data()));
  }
  return places;
}

KvView KvCache::storage(int64_t layer) const {
  const Layer& entry = layers_[static_cast<size_t>(layer)];
  KvView view = layers_[entry.source].kv.view();
  view.q_scales = entry.kv.q_scales.as<float>();
  view.q_dtype = entry.kv.q_dtype;
  view.weight_scale = entry.weight_scale;
  view.indexer_keys = entry.indexer_keys.as<float>();
  return view;
}

void KvCache::advance(std::span<const TokenId> ids, int64_t slot) {
  lengths_[static_cast<size_t>(slot)] += std::ssize(ids);
  std::vector<TokenId>& last = last_ids_[static_cast<size_t>(slot)];
  const size_t kept = last.size();
  last.insert(last.end(), ids.begin(), ids.end());
  last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(kept));
}

}  // namespace kvcal
