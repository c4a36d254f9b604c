#include "forward/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <sstream>

#include "family/architecture.h"
#include "forward/embedding.h"
#include "forward/ngram_embedding.h"

namespace kvcal {
namespace {

/// Caches that are stepped in turn: two when texts are compared.
constexpr size_t kMostRecordings = 4;
constexpr size_t kRowAt = sizeof(Segment), kPositionsAt = kRowAt + sizeof(int64_t);

/// Longest sequence with unscaled frequencies.
int64_t rope_block_end(const RopeConfig& rope) {
  return rope.type == RopeConfig::Type::kDynamic ? rope.max_position_embeddings
                                                 : rope.original_max_position_embeddings;
}

/// Of the final norm's output, and of lm_head's input, which takes its place.
int64_t head_input_width(const ModelConfig& config) {
  return std::max(config.hidden_size, config.embedding_size);
}

void finish_logits(const ModelConfig& config, std::vector<float>& logits) {
  const float cap = config.logits_softcap;
  if (config.logits_multiplier != 1.0f)
    for (float& logit : logits) logit *= config.logits_multiplier;
  if (cap > 0.0f)
    for (float& logit : logits) logit = cap * std::tanh(logit / cap);
}

}  // namespace

/// Decoding steps of one token, recorded once and replayed for every token. Values that change
/// between steps (positions, sequence length, row of the cache) lie in buffers with fixed
/// addresses. The first step on a cache, or with other rope tables, runs unrecorded, so that
/// one-time setup is done before the second step is recorded. Borrows config and backend.
class DecoderStep {
 public:
  DecoderStep(const ModelConfig& config, Backend& backend, ComputeType type);

  /// Whether a step can be recorded. It cannot where the host chooses experts, where buffers grow
  /// with the sequence, or where rope tables change with the length.
  static bool can_record(const ModelConfig& config, const Backend& backend, int64_t length);

  /// Issues the operations of one step, from the token's embedding in hidden to its logits.
  using Body = std::function<void(LayerRunner& runner, const TokenBatch& batch, float* hidden,
                                  void* normed, float* logits)>;
  /// Runs body for the token after those in cache. hidden() must hold its embedding; logits() then
  /// holds its logits.
  void run(const KvCache& cache, const RopeTables& ropes, const Body& body);

  float* hidden() const { return hidden_.as<float>(); }
  const Buffer& logits() const { return logits_; }
  /// Scratch for products that body issues itself; recordings keep its address.
  ProductScratch& scratch() { return scratch_; }

 private:
  using Places = std::vector<uintptr_t>;
  void place_token(const KvCache& cache, const RopeTables& ropes);
  static Places places_of(const KvCache& cache, const RopeTables& ropes);

  Backend& backend_;
  LayerRunner runner_;
  Buffer hidden_;  ///< [1, hidden_size] float32
  Buffer normed_;  ///< [1, head_input_width] of type
  Buffer logits_;  ///< [1, output_vocab_size] float32
  ProductScratch scratch_;
  Buffer current_;  ///< Segment, int64 row of the cache, int32 row of each rope's table
  TokenBatch batch_;
  /// Null after the first step; oldest first.
  std::vector<std::pair<Places, std::unique_ptr<Recording>>> recordings_;
};

bool DecoderStep::can_record(const ModelConfig& config, const Backend& backend, int64_t length) {
  if (!backend.can_record() || config.architecture->has_latent_attention) return false;
  if (config.reads_ids_in_layers()) return false;  // the host looks up their rows
  if (config.indexer.topk > 0) return false;
  if (std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.is_moe; }))
    return false;
  return std::ranges::none_of(config.ropes, [&](const RopeConfig& rope) {
    return rope.type == RopeConfig::Type::kDynamic && rope_block(rope, length) != 0;
  });
}

DecoderStep::DecoderStep(const ModelConfig& config, Backend& backend, ComputeType type)
    : backend_(backend),
      runner_(config, backend, type, 1),
      hidden_(allocate<float>(backend, config.hidden_size)),
      normed_(backend.allocate(static_cast<size_t>(head_input_width(config)) * bytes_of(type))),
      logits_(allocate<float>(backend, config.output_vocab_size)),
      current_(backend.allocate(kPositionsAt + config.ropes.size() * sizeof(int32_t))) {
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
  for (size_t rope = 0; rope < ropes.size(); ++rope) {
    const int32_t row = ropes[rope].row(before, after);
    std::memcpy(current.data() + kPositionsAt + rope * sizeof row, &row, sizeof row);
  }
  backend_.copy_in(current, current_.data());
}

DecoderStep::Places DecoderStep::places_of(const KvCache& cache, const RopeTables& ropes) {
  Places places = cache.places();
  for (const RopeTable& rope : ropes)
    for (const float* table : {rope.cos(), rope.sin(), rope.query_cos(), rope.query_sin()})
      places.push_back(reinterpret_cast<uintptr_t>(table));
  return places;
}

void DecoderStep::run(const KvCache& cache, const RopeTables& ropes, const Body& body) {
  place_token(cache, ropes);
  batch_.ropes = &ropes;
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

Decoder::Decoder(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Decoder::Decoder(const ModelConfig& config, const Weights& weights, Backend& backend,
                 ComputeType type)
    : config_(config), weights_(weights), backend_(backend), type_(type) {
  if (!backend.supports(type))
    fail("compute dtype ", name_of(type), " is not supported by ", backend.description());
  Backend* const one = &backend;
  const auto group = backend.make_pack_group(std::span(&one, 1));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    weights.will_need(layer + 1);
    layers_.push_back(
        std::move(pack_layer(weights, config, layer, LayerParts::kAll, *group, type).front()));
    weights.drop(layer);
  }
  embedding_ = pack_embedding(weights, config, *group, type);
  head_input_ = pack_head_input(weights, config, *group, type);
  output_embedding_ = pack_output_embedding(weights, config, *group, type);
}

KvCache Decoder::make_cache(const CacheType& type, const std::vector<LayerKvScales>& scales,
                            int64_t capacity, int64_t slots) const {
  config_.check_length(capacity);
  return KvCache(config_, backend_, type, scales, capacity, slots);
}

std::vector<float> Decoder::step(std::span<const TokenId> ids, KvCache& cache) {
  check(ids, cache);
  if (ids.size() == 1 && DecoderStep::can_record(config_, backend_, cache.length() + 1))
    return run_recorded(ids[0], cache);
  run(ids, cache);
  return logits_of(hidden_, std::ssize(ids) - 1, 1);
}

std::vector<float> Decoder::step_together(std::span<const SequenceTokens> sequences,
                                          KvCache& cache) {
  const TokenBatch step = run(sequences, cache, true);
  std::vector<int32_t> last_rows;
  for (const Segment& segment : step.segments)
    last_rows.push_back(static_cast<int32_t>(segment.q_begin + segment.q_count - 1));
  return logits_at(hidden_, last_rows);
}

Buffer Decoder::step_hidden_together(std::span<const SequenceTokens> sequences, KvCache& cache) {
  return copy_of_hidden(run(sequences, cache, true).num_tokens);
}

std::vector<float> Decoder::logits_at(const Buffer& hidden, std::span<const int32_t> rows) {
  const auto count = std::ssize(rows);
  const Buffer places = upload<int32_t>(rows, backend_);
  const Buffer gathered = allocate<float>(backend_, count * config_.hidden_size);
  backend_.gather_rows({.x = hidden.data(),
                        .rows = places.as<int32_t>(),
                        .count = count,
                        .width = config_.hidden_size,
                        .out = gathered.data()});
  return logits_of_rows(gathered.as<float>(), count, false);
}

Buffer Decoder::step_hidden(std::span<const TokenId> ids, KvCache& cache, int64_t whole_length) {
  run(ids, cache, whole_length);
  return copy_of_hidden(std::ssize(ids));
}

Buffer Decoder::copy_of_hidden(int64_t rows) {
  const int64_t width = config_.hidden_size;
  Buffer copy = allocate<float>(backend_, rows * width);
  backend_.copy_heads({.x = contiguous(hidden_.as<float>(), rows, 1, width),
                       .out = contiguous(copy.as<float>(), rows, 1, width),
                       .width = width});
  return copy;
}

std::vector<Buffer> Decoder::step_branches(std::span<const TokenId> ids, KvCache& cache,
                                           std::span<const Branch> branches, int64_t whole_length) {
  KVCAL_CHECK(std::ranges::is_sorted(branches, {}, &Branch::layer));
  const SequenceTokens only{.ids = ids, .whole_length = whole_length};
  const TokenBatch step = place({&only, 1}, cache);
  const int64_t end = config_.num_hidden_layers;
  std::vector<Buffer> streams;
  int64_t layer = 0;
  for (const Branch& branch : branches) {
    check(ids, branch.cache);
    KVCAL_CHECK(branch.cache.length() == cache.length());
    run_layers(step, hidden_, cache, {layer, branch.layer});
    layer = branch.layer;
    Buffer selection = runner_->attention().copy_of_selection();
    streams.push_back(copy_of_hidden(config_.streams * step.num_tokens));
    run_layers(step, streams.back(), branch.cache, {layer, end, &cache});
    advance(step, branch.cache);
    runner_->attention().restore_selection(std::move(selection));
  }
  run_layers(step, hidden_, cache, {layer, end});
  advance(step, cache);
  streams.push_back(copy_of_hidden(step.num_tokens));
  return streams;
}

const RopeTables& Decoder::ropes_for(int64_t length) {
  // Rows double, so that a growing sequence rarely rebuilds the tables. Lengths of another block
  // have other frequencies.
  int64_t wanted = std::max<int64_t>(256, 2 * length);
  bool is_current = rope_length_ >= length;
  for (const RopeConfig& rope : config_.ropes) {
    const auto same = [&](int64_t a, int64_t b) {
      return rope_block(rope, a) == rope_block(rope, b);
    };
    if (!same(rope_length_, length)) is_current = false;
    if (!same(wanted, length)) wanted = std::max(length, std::min(wanted, rope_block_end(rope)));
  }
  if (!is_current) {
    rope_length_ = wanted;
    ropes_ = rope_tables(config_, {rope_length_}, backend_);
  }
  return ropes_;
}

const RopeTables& Decoder::ropes_for(const std::vector<int64_t>& lengths) {
  const int64_t longest = *std::ranges::max_element(lengths);
  const bool share_tables = std::ranges::all_of(config_.ropes, [&](const RopeConfig& rope) {
    return std::ranges::all_of(lengths, [&](int64_t length) {
      return rope_block(rope, length) == rope_block(rope, longest);
    });
  });
  if (share_tables) return ropes_for(longest);
  mixed_ropes_ = rope_tables(config_, lengths, backend_);
  return mixed_ropes_;
}

void Decoder::check(std::span<const TokenId> ids, const KvCache& cache, int64_t slot) const {
  KVCAL_CHECK(!ids.empty());
  for (const TokenId id : ids)
    if (id < 0 || id >= config_.vocab_size)
      fail("token id ", id, " is outside the vocabulary of ", config_.vocab_size);
  const int64_t after = cache.length(slot) + static_cast<int64_t>(ids.size());
  if (after > cache.capacity())
    fail("the KV cache holds ", counted(cache.capacity(), "token"), ", ", after, " are needed");
}

TokenBatch Decoder::place(std::span<const SequenceTokens> sequences, const KvCache& cache) {
  KVCAL_CHECK(!sequences.empty());
  KVCAL_CHECK(std::ranges::is_sorted(sequences, std::ranges::less_equal(), &SequenceTokens::slot));
  for (const SequenceTokens& sequence : sequences) check(sequence.ids, cache, sequence.slot);
  TokenBatch batch;
  for (const auto& [slot, added, whole_length] : sequences) {
    const int64_t before = cache.length(slot), after = before + std::ssize(added);
    batch.append(added, before, std::max(after, whole_length));
    batch.segments.back().kv_begin = slot * cache.capacity();
    batch.slots.push_back(slot);
    const std::span<const TokenId> last = cache.last_ids(slot);
    batch.ids_before.insert(batch.ids_before.end(), last.begin(), last.end());
  }
  const int64_t count = batch.num_tokens;
  batch.is_decoding = count == std::ssize(sequences);
  if (runner_tokens_ < count) {
    runner_ = std::make_unique<LayerRunner>(config_, backend_, type_, count);
    hidden_ = allocate<float>(backend_, count * config_.streams * config_.hidden_size);
    runner_tokens_ = count;
  }
  batch.upload_positions(ropes_for(batch.whole_lengths), backend_);
  embed_tokens(config_, weights_, embedding_, batch.ids, batch.in_sequence(), backend_,
               hidden_.as<float>());
  if (config_.has_layer_inputs) {
    embedded_ = copy_of_hidden(count);
    input_rows_ = allocate<float>(backend_, count * config_.layer_input_size);
  }
  if (config_.ngrams.longest > 0)
    input_rows_ = allocate<float>(backend_, count * config_.ngrams.width);
  return batch;
}

TokenBatch Decoder::run(std::span<const SequenceTokens> sequences, KvCache& cache,
                        bool has_fixed_products) {
  TokenBatch step = place(sequences, cache);
  step.has_fixed_products = has_fixed_products;
  run_layers(step, hidden_, cache, {0, config_.num_hidden_layers});
  advance(step, cache);
  return step;
}

void Decoder::advance(const TokenBatch& step, KvCache& cache) {
  for (size_t i = 0; i < step.segments.size(); ++i) {
    const Segment& segment = step.segments[i];
    cache.advance(std::span(step.ids).subspan(static_cast<size_t>(segment.q_begin),
                                              static_cast<size_t>(segment.q_count)),
                  step.slots[i]);
  }
}

std::vector<float> Decoder::run_recorded(TokenId id, KvCache& cache) {
  const RopeTables& ropes = ropes_for(cache.length() + 1);
  if (!step_) step_ = std::make_unique<DecoderStep>(config_, backend_, type_);
  const auto position = static_cast<int32_t>(cache.length());
  embed_tokens(config_, weights_, embedding_, std::span(&id, 1), std::span(&position, 1), backend_,
               step_->hidden());
  step_->run(cache, ropes,
             [&](LayerRunner& runner, const TokenBatch& batch, float* hidden, void* normed,
                 float* logits) {
               run_layers(runner, batch, hidden, cache, {0, config_.num_hidden_layers});
               project_logits(hidden, 1, normed, logits, true, step_->scratch());
             });
  cache.advance({&id, 1});
  return read_logits(step_->logits(), 1);
}

void Decoder::run_layers(LayerRunner& runner, const TokenBatch& batch, float* hidden,
                         KvCache& cache, LayerRange layers) {
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    if (config_.has_layer_inputs) {
      embed_layer_input(config_, weights_, layer, batch.ids, backend_, input_rows_.as<float>());
      runner.take_inputs({.embedded = embedded_.as<float>(), .rows = input_rows_.as<float>()});
    }
    if (config_.layer(layer).has_ngrams) {
      embed_ngrams(config_, weights_, layer, batch, backend_, input_rows_.as<float>());
      runner.take_inputs({.ngrams = input_rows_.as<float>()});
    }
    runner.begin(layers_[static_cast<size_t>(layer)], layer, batch);
    KvView storage;
    const LayerStates* const states = cache.states(layer);
    if (config_.has_attention(layer)) {
      const KeysValues made = runner.keys_values(hidden, states);
      if (config_.has_own_cache(layer)) cache.append(layer, made, batch);
      const bool is_earlier = layers.earlier && config_.layer(layer).cache_layer < layers.begin;
      storage = (is_earlier ? *layers.earlier : cache).storage(layer);
    }
    storage.states = states;
    runner.finish(hidden, storage);
  }
}

std::vector<float> Decoder::logits_of(const Buffer& hidden, int64_t first_row, int64_t rows) {
  return logits_of_rows(hidden.as<float>() + first_row * config_.hidden_size, rows,
                        first_row == 0 && rows == 1);
}

std::vector<float> Decoder::logits_of_rows(const float* hidden, int64_t rows, bool is_decoding) {
  const auto normed_bytes = static_cast<size_t>(rows * head_input_width(config_)) * bytes_of(type_);
  const Buffer normed = backend_.allocate(normed_bytes);
  const Buffer logits = allocate<float>(backend_, rows * config_.output_vocab_size);
  project_logits(hidden, rows, normed.data(), logits.as<float>(), is_decoding, scratch_);
  return read_logits(logits, rows);
}

void Decoder::project_logits(const float* hidden, int64_t rows, void* normed, float* logits,
                             bool is_decoding, ProductScratch& scratch) {
  normalize(backend_, config_, head_input_.norm,
            {.x = hidden, .rows = rows, .type = type_, .out = normed});
  if (head_input_.projection.matrix) {
    float* projected = grown<float>(backend_, scratch.inner, rows * config_.embedding_size);
    multiply(backend_, {.x = normed,
                        .linear = head_input_.projection,
                        .rows = rows,
                        .out = projected,
                        .is_decoding = is_decoding,
                        .scratch = &scratch});
    convert(backend_, projected, rows, config_.embedding_size, type_, normed);
  }
  multiply(backend_, {.x = normed,
                      .linear = output_embedding_,
                      .rows = rows,
                      .out = logits,
                      .is_decoding = is_decoding,
                      .scratch = &scratch});
}

std::vector<float> Decoder::read_logits(const Buffer& logits, int64_t rows) {
  std::vector<float> host =
      downloaded(backend_, logits.as<float>(), rows * config_.output_vocab_size);
  finish_logits(config_, host);
  const auto bad = std::ranges::find_if(host, [](float value) { return !std::isfinite(value); });
  if (bad != host.end()) fail_nonfinite(*bad, bad - host.begin());
  return host;
}

[[noreturn]] void Decoder::fail_nonfinite(float value, int64_t place) const {
  std::ostringstream text;
  // The sign of NaN depends on the processor.
  text << "the logits of " << shown_text(weights_.model_dir().path().string()) << " hold "
       << (std::isnan(value) ? "NaN" : "infinity") << " at vocabulary entry "
       << place % config_.output_vocab_size
       << ": the weights or the compute dtype cannot carry this model";
  throw NotFiniteLogits(text.str(), place / config_.output_vocab_size);
}

}  // namespace kvcal
