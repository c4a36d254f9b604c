#include "model/layerwise.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backend/upload.h"
#include "core/interrupt.h"
#include "model/embedding.h"

namespace kvcal {

/// What one pass over a layer collects, in backend memory until the pass is over.
struct LayerwiseForward::Observers {
  Observers(Backend& backend, int64_t samples, int64_t heads)
      : heads_(static_cast<size_t>(heads)), ranges_(static_cast<size_t>(samples * heads)) {
    for (Side* side : {&k, &v}) {
      side->ranges = backend.allocate(ranges_ * sizeof(ObservedRange));
      side->histogram = backend.allocate(heads_ * MagnitudeHistogram::kBins * sizeof(uint64_t));
      backend.fill_zero(side->histogram.data(), side->histogram.size());
    }
  }
  struct Side {
    Buffer ranges, histogram;
  };

  void observe(Backend& backend, const LayerRunner::KeysValues& kv, const SampleBatch& batch) {
    const auto offset = static_cast<size_t>(batch.first_sample) * heads_;
    backend.observe_kv({kv.k, batch.tokens.segments, k.ranges.as<ObservedRange>() + offset,
                        k.histogram.as<uint64_t>()});
    backend.observe_kv({kv.v, batch.tokens.segments, v.ranges.as<ObservedRange>() + offset,
                        v.histogram.as<uint64_t>()});
  }
  KvObservation take(Backend& backend, const Side& side) const {
    KvObservation result;
    result.ranges.resize(ranges_);
    result.histograms.resize(heads_);
    backend.copy_out(side.ranges.data(), std::as_writable_bytes(std::span(result.ranges)));
    backend.copy_out(side.histogram.data(), std::as_writable_bytes(std::span(result.histograms)));
    return result;
  }

  Side k, v;

 private:
  size_t heads_, ranges_;
};

/// K and V of one batch as attention reads them.
struct LayerwiseForward::Storage {
  Storage(Backend& backend, const ModelConfig& config, int64_t max_tokens, KvDType dtype)
      : dtype_(dtype) {
    const int64_t row = config.cache_heads() * bytes_per_element(dtype);
    k_ = backend.allocate(static_cast<size_t>(max_tokens * row * config.cache_k_dim()));
    v_ = backend.allocate(static_cast<size_t>(max_tokens * row * config.cache_v_dim()));
  }
  Storage(Backend& backend, const ModelConfig& config, int64_t max_tokens,
          const KvQuantization& quantization)
      : Storage(backend, config, max_tokens, quantization.dtype) {
    const auto heads = static_cast<size_t>(config.cache_heads());
    KVCAL_CHECK(quantization.k_scales.size() == heads && quantization.v_scales.size() == heads);
    k_scales_ = upload<float>(quantization.k_scales, backend);
    v_scales_ = upload<float>(quantization.v_scales, backend);
    for (Buffer* saturated : {&k_saturated_, &v_saturated_}) {
      *saturated = backend.allocate(heads * sizeof(uint64_t));
      backend.fill_zero(saturated->data(), saturated->size());
    }
  }

  KvStorage store(Backend& backend, const LayerRunner::KeysValues& kv) {
    backend.store_kv({kv.k, dtype_, k_scales_.as<float>(), k_.data(), k_saturated_.as<uint64_t>()});
    backend.store_kv({kv.v, dtype_, v_scales_.as<float>(), v_.data(), v_saturated_.as<uint64_t>()});
    return {dtype_, k_.data(), v_.data(), k_scales_.as<float>(), v_scales_.as<float>()};
  }
  SaturationCounts saturated(Backend& backend) const {
    return {sum(backend, k_saturated_), sum(backend, v_saturated_)};
  }

 private:
  static uint64_t sum(Backend& backend, const Buffer& counts) {
    std::vector<uint64_t> host(counts.size() / sizeof(uint64_t));
    backend.copy_out(counts.data(), std::as_writable_bytes(std::span(host)));
    return std::accumulate(host.begin(), host.end(), uint64_t{0});
  }

  KvDType dtype_;
  Buffer k_, v_, k_scales_, v_scales_, k_saturated_, v_saturated_;
};

namespace {

int64_t longest_of(std::span<const std::span<const TokenId>> samples) {
  size_t longest = 0;
  for (const auto& sample : samples) longest = std::max(longest, sample.size());
  return static_cast<int64_t>(longest);
}

uint64_t cached_bytes_per_token(const ModelConfig& config) {
  return static_cast<uint64_t>(config.cache_heads() *
                               (config.cache_k_dim() + config.cache_v_dim())) *
         sizeof(float);
}

/// The wanted batch, or the smallest one when the memory limit leaves room for no more.
int64_t batch_tokens_within(const ModelConfig& config, const LayerwiseOptions& options,
                            const Backend& backend, int64_t longest) {
  const int64_t preferred =
      options.batch_tokens > 0 ? options.batch_tokens : backend.preferred_batch_tokens();
  const int64_t wanted = std::max(preferred, longest);
  if (!options.memory_limit) return wanted;
  const uint64_t layer = packed_layer_bytes(config, options.compute_type);
  const uint64_t per_token =
      LayerRunner::bytes_per_token(config, options.compute_type) + cached_bytes_per_token(config);
  const uint64_t least = layer + per_token * static_cast<uint64_t>(longest);
  if (least > *options.memory_limit)
    fail("the memory limit of ", *options.memory_limit,
         " bytes cannot hold one layer and the longest sample of ", longest, " tokens, which take ",
         least, " bytes");
  const uint64_t room = (*options.memory_limit - layer) / 2 / per_token;
  return std::clamp(static_cast<int64_t>(room), longest, wanted);
}

}  // namespace

LayerwiseForward::LayerwiseForward(const ModelConfig& config, const Weights& weights,
                                   Backend& backend,
                                   std::span<const std::span<const TokenId>> samples,
                                   const LayerwiseOptions& options, Diagnostics& diagnostics)
    : config_(config),
      weights_(weights),
      backend_(backend),
      diagnostics_(diagnostics),
      type_(options.compute_type) {
  if (!backend.supports(type_))
    fail("compute dtype ", name_of(type_), " is not supported by ", backend.description());
  const int64_t longest = longest_of(samples);
  make_batches(samples, batch_tokens_within(config, options, backend, longest));
  for (const SampleBatch& batch : batches_)
    longest_batch_ = std::max(longest_batch_, batch.tokens.num_tokens);
  runner_ = std::make_unique<LayerRunner>(config, backend, type_, longest_batch_);
  reserve_hidden(options);
  embed(samples);
}

LayerwiseForward::~LayerwiseForward() = default;

void LayerwiseForward::make_batches(std::span<const std::span<const TokenId>> samples,
                                    int64_t batch_tokens) {
  std::vector<int64_t> lengths;
  for (const auto& sample : samples) lengths.push_back(static_cast<int64_t>(sample.size()));
  ropes_ = std::make_unique<RopeTables>(config_, lengths, backend_);
  TokenPositions positions;
  const auto close_batch = [&] {
    if (!batches_.empty())
      batches_.back().tokens.positions = positions.upload_rows(*ropes_, backend_);
    positions = {};
  };
  for (const int64_t length : lengths) {
    KVCAL_CHECK(length > 0);
    if (batches_.empty() || batches_.back().tokens.num_tokens + length > batch_tokens) {
      close_batch();
      SampleBatch batch;
      batch.first_token = num_tokens_;
      batch.first_sample = num_samples_;
      batches_.push_back(std::move(batch));
    }
    TokenBatch& batch = batches_.back().tokens;
    batch.segments.push_back({.q_begin = batch.num_tokens,
                              .q_count = length,
                              .kv_begin = batch.num_tokens,
                              .kv_count = length});
    for (int64_t position = 0; position < length; ++position) positions.add(position, length);
    batch.num_tokens += length;
    num_tokens_ += length;
    ++num_samples_;
  }
  close_batch();
}

void LayerwiseForward::reserve_hidden(const LayerwiseOptions& options) {
  const auto bytes = static_cast<size_t>(num_tokens_ * config_.hidden_size) * sizeof(float);
  const uint64_t others =
      packed_layer_bytes(config_, type_) +
      LayerRunner::bytes_per_token(config_, type_) * static_cast<uint64_t>(longest_batch_);
  if (options.memory_limit && others + bytes > *options.memory_limit) {
    hidden_scratch_.emplace(options.scratch_folder, bytes);
  } else {
    hidden_buffer_ = backend_.allocate(bytes);
  }
}

float* LayerwiseForward::hidden_of(const SampleBatch& batch) const {
  float* hidden = hidden_scratch_ ? reinterpret_cast<float*>(hidden_scratch_->data())
                                  : hidden_buffer_.as<float>();
  return hidden + batch.first_token * config_.hidden_size;
}

void LayerwiseForward::embed(std::span<const std::span<const TokenId>> samples) {
  for (const SampleBatch& batch : batches_) {
    std::vector<TokenId> ids;
    std::vector<int32_t> positions;
    for (size_t i = 0; i < batch.tokens.segments.size(); ++i) {
      const auto sample = samples[static_cast<size_t>(batch.first_sample) + i];
      ids.insert(ids.end(), sample.begin(), sample.end());
      for (size_t at = 0; at < sample.size(); ++at) positions.push_back(static_cast<int32_t>(at));
    }
    embed_tokens(config_, weights_, ids, positions, backend_, hidden_of(batch));
  }
}

void LayerwiseForward::bring_layer(int64_t layer, LayerParts parts) {
  if (packed_index_ == layer && (packed_parts_ == parts || packed_parts_ == LayerParts::kAll))
    return;
  packed_ = PackedLayer{};
  weights_.will_need(layer + 1);
  packed_ = pack_layer(weights_, config_, layer, parts, backend_, type_);
  weights_.drop(layer);
  packed_index_ = layer;
  packed_parts_ = parts;
}

void LayerwiseForward::report(const SampleBatch& batch, Share share) {
  if (share == Share::kNone) return;
  int64_t done = batch.first_token + batch.tokens.num_tokens;
  if (share != Share::kWhole) done = (done + (share == Share::kSecondHalf ? num_tokens_ : 0)) / 2;
  // Tokens that would be through all layers had the work gone by samples: what people expect to
  // read.
  diagnostics_.progress("calibrating",
                        (packed_index_ * num_tokens_ + done) / config_.num_hidden_layers,
                        num_tokens_, "tokens");
}

template <class Visit>
void LayerwiseForward::for_each_batch(Share share, const Visit& visit) {
  for (const SampleBatch& batch : batches_) {
    throw_if_interrupted();
    visit(batch,
          runner_->keys_values(packed_, packed_index_, hidden_of(batch), batch.tokens, *ropes_));
    report(batch, share);
  }
}

void LayerwiseForward::advance_without_attention(int64_t layer) {
  bring_layer(layer, LayerParts::kAll);
  for (const SampleBatch& batch : batches_) {
    throw_if_interrupted();
    runner_->run_without_attention(packed_, layer, hidden_of(batch), batch.tokens, nullptr);
    report(batch, Share::kWhole);
  }
}

LayerObservation LayerwiseForward::observe(int64_t layer) {
  const bool is_last = layer == config_.last_attention_layer();
  bring_layer(layer, is_last ? LayerParts::kKeyValue : LayerParts::kAll);
  Observers observers(backend_, num_samples_, config_.cache_heads());
  for_each_batch(is_last ? Share::kWhole : Share::kFirstHalf,
                 [&](const SampleBatch& batch, const LayerRunner::KeysValues& kv) {
                   observers.observe(backend_, kv, batch);
                 });
  return {observers.take(backend_, observers.k), observers.take(backend_, observers.v)};
}

SaturationCounts LayerwiseForward::count_saturated(int64_t layer,
                                                   const KvQuantization& quantization) {
  bring_layer(layer, LayerParts::kKeyValue);
  Storage storage(backend_, config_, longest_batch_, quantization);
  for_each_batch(Share::kNone, [&](const SampleBatch&, const LayerRunner::KeysValues& kv) {
    storage.store(backend_, kv);
  });
  return storage.saturated(backend_);
}

SaturationCounts LayerwiseForward::advance(int64_t layer, const KvQuantization& quantization) {
  bring_layer(layer, LayerParts::kAll);
  Storage storage(backend_, config_, longest_batch_, quantization);
  for_each_batch(Share::kSecondHalf,
                 [&](const SampleBatch& batch, const LayerRunner::KeysValues& kv) {
                   runner_->finish(packed_, layer, hidden_of(batch), batch.tokens, *ropes_,
                                   storage.store(backend_, kv));
                 });
  return storage.saturated(backend_);
}

void LayerwiseForward::advance_exact(int64_t layer) {
  bring_layer(layer, LayerParts::kAll);
  Storage storage(backend_, config_, longest_batch_, KvDType::kFloat32);
  for_each_batch(Share::kSecondHalf,
                 [&](const SampleBatch& batch, const LayerRunner::KeysValues& kv) {
                   runner_->finish(packed_, layer, hidden_of(batch), batch.tokens, *ropes_,
                                   storage.store(backend_, kv));
                 });
}

LayerObservation LayerwiseForward::observe_and_advance_exact(int64_t layer) {
  bring_layer(layer, LayerParts::kAll);
  Observers observers(backend_, num_samples_, config_.cache_heads());
  Storage storage(backend_, config_, longest_batch_, KvDType::kFloat32);
  for_each_batch(Share::kWhole, [&](const SampleBatch& batch, const LayerRunner::KeysValues& kv) {
    observers.observe(backend_, kv, batch);
    runner_->finish(packed_, layer, hidden_of(batch), batch.tokens, *ropes_,
                    storage.store(backend_, kv));
  });
  return {observers.take(backend_, observers.k), observers.take(backend_, observers.v)};
}

void LayerwiseForward::observe_linear_inputs(LinearInputObserver observer) {
  runner_->observe_linear_inputs(std::move(observer));
}

}  // namespace kvcal
