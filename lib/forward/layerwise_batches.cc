// Batches of LayerwiseForward and what goes from layer to layer: their inputs, the residual stream,
// and K and V that later layers read. Draft layers: see family/draft_layer.h.
#include <algorithm>
#include <cstring>

#include "backend/backend.h"
#include "core/interrupt.h"
#include "family/architecture.h"
#include "forward/embedding.h"
#include "forward/layerwise.h"
#include "forward/memory_plan.h"
#include "forward/ngram_embedding.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// Bytes that one access to a mapped table may map besides its row: the system also maps the pages
/// around it.
constexpr int64_t kMappedAround = int64_t{64} << 10;
/// Limit for mapped pages of a large table.
constexpr int64_t kMappedTable = int64_t{64} << 20;

/// Calls body with each run of embedded tokens of a batch and the batch's row of its first token.
/// Pages of a segment's rows are given back behind them.
template <class Body>
void for_each_image_run(const TokenBatch& tokens, const Body& body) {
  for (size_t i = 0; i < tokens.segments.size(); ++i) {
    const EmbeddedTokens* images = tokens.embedded_of(i);
    if (!images) continue;
    for (const EmbeddedRun& run : runs_of(*images))
      body(*images, run, tokens.segments[i].q_begin + run.position);
    if (!images->drop) continue;
    images->drop(images->rows);
    for (const auto& [layer, rows] : images->injected) images->drop(rows);
  }
}

/// float32 rows of a run, [run.count, hidden_size].
std::vector<float> rows_of(const TensorView& all, const EmbeddedRun& run) {
  const size_t row = all.bytes.size() / static_cast<size_t>(all.shape[0]);
  const TensorView rows{.name = all.name,
                        .dtype = all.dtype,
                        .shape = {run.count, all.shape[1]},
                        .bytes = all.bytes.subspan(static_cast<size_t>(run.first) * row,
                                                   static_cast<size_t>(run.count) * row)};
  return as_float32(std::span(&rows, 1));
}

}  // namespace

void LayerwiseForward::make_batches(std::span<const std::span<const TokenId>> samples,
                                    const LayerwiseOptions& options,
                                    const std::vector<int64_t>& lengths, int64_t batch_tokens) {
  KVCAL_CHECK(options.embedded.empty() || options.embedded.size() == samples.size());
  ropes_ = rope_tables(config_, lengths, backend_, places_of(options.embedded));
  for (const std::span<const TokenId> ids : samples) {
    const int64_t length = std::ssize(ids);
    KVCAL_CHECK(length > 0);
    if (batches_.empty() || batches_.back().tokens.num_tokens + length > batch_tokens) {
      SampleBatch& batch = batches_.emplace_back();
      batch.first_token = num_tokens_;
      batch.first_sample = num_samples_;
    }
    TokenBatch& tokens = batches_.back().tokens;
    tokens.append(ids, 0, length);
    if (!options.embedded.empty())
      tokens.embedded.push_back(options.embedded[static_cast<size_t>(num_samples_)]);
    num_tokens_ += length;
    ++num_samples_;
  }
  for (SampleBatch& batch : batches_) batch.tokens.upload_positions(ropes_, backend_);
}

void LayerwiseForward::embed(const MemoryPlan& plan) {
  const Buffer resident = embedding_on_device(
      weights_, backend_, num_tokens_,
      plan.room_before_layers(longest_batch_, num_tokens_ * config_.carried_width(longest_sample_),
                              hidden_->are_in_backend()));
  hidden_->walk(HiddenStates::Access::kWrite, [&](size_t index, float* hidden) {
    const TokenBatch& tokens = batches_[index].tokens;
    embed(tokens.ids, tokens.in_sequence(), hidden, resident.data());
    put_images(tokens, hidden);
  });
  weights_.drop(Role::kEmbedding);
  weights_.drop(Role::kPositionEmbedding);
}

void LayerwiseForward::embed(std::span<const TokenId> ids, std::span<const int32_t> positions,
                             float* hidden, const std::byte* resident) {
  const TensorView& embedding = weights_.at(Role::kEmbedding);
  const auto table = static_cast<int64_t>(embedding.bytes.size());
  const int64_t row = table / std::max<int64_t>(1, embedding.shape[0]);
  const auto part = static_cast<size_t>(
      table > kMappedTable && !resident ? std::max<int64_t>(1, kMappedTable / (row + kMappedAround))
                                        : std::ssize(ids));
  for (size_t begin = 0; begin < ids.size(); begin += part) {
    const size_t count = std::min(part, ids.size() - begin);
    embed_tokens(config_, weights_, embedding_, ids.subspan(begin, count),
                 positions.subspan(begin, count), backend_,
                 hidden + static_cast<int64_t>(begin) * config_.hidden_size, resident);
    if (part < ids.size()) weights_.drop(Role::kEmbedding);
  }
}

void LayerwiseForward::put_images(const TokenBatch& tokens, float* hidden) {
  for_each_image_run(
      tokens, [&](const EmbeddedTokens& images, const EmbeddedRun& run, int64_t row) {
        const std::vector<float> rows = rows_of(images.rows, run);
        backend_.copy_in(std::as_bytes(std::span(rows)),
                         reinterpret_cast<std::byte*>(hidden + row * config_.hidden_size));
      });
}

void LayerwiseForward::inject_images(const TokenBatch& tokens, float* hidden) {
  for_each_image_run(tokens,
                     [&](const EmbeddedTokens& images, const EmbeddedRun& run, int64_t row) {
                       const auto injected = images.injected.find(layer_);
                       if (injected == images.injected.end()) return;
                       const Buffer rows = upload<float>(rows_of(injected->second, run), backend_);
                       backend_.add({.x = rows.as<float>(),
                                     .count = count_of<float>(rows),
                                     .out = hidden + row * config_.hidden_size});
                     });
}

void LayerwiseForward::give_inputs(const SampleBatch& batch) {
  if (config_.layer(layer_).has_ngrams) {
    embed_ngrams(config_, weights_, layer_, batch.tokens, backend_, input_rows_.as<float>());
    runner_->take_inputs({.ngrams = input_rows_.as<float>()});
  }
  if (!config_.has_layer_inputs) return;
  const std::vector<int32_t> no_positions(batch.tokens.ids.size(), 0);
  embed(batch.tokens.ids, no_positions, embedded_.as<float>());
  put_images(batch.tokens, embedded_.as<float>());
  weights_.drop(Role::kEmbedding);
  embed_layer_input(config_, weights_, layer_, batch.tokens.ids, backend_, input_rows_.as<float>());
  runner_->take_inputs({.embedded = embedded_.as<float>(), .rows = input_rows_.as<float>()});
}

void LayerwiseForward::make_draft_batches() {
  draft_.emplace();
  for (const SampleBatch& batch : batches_) {
    DraftRows::Batch& own = draft_->batches.emplace_back();
    std::vector<int32_t> sources;
    for (size_t i = 0; i < batch.tokens.segments.size(); ++i) {
      const Segment& sample = batch.tokens.segments[i];
      const int64_t length = sample.q_count;
      if (!batch.tokens.embedded.empty()) {
        const EmbeddedTokens* images = batch.tokens.embedded[i];
        if (images)
          draft_->embedded.push_back(std::make_unique<EmbeddedTokens>(behind_first(*images)));
        own.tokens.embedded.push_back(images ? draft_->embedded.back().get() : nullptr);
      }
      own.tokens.append(
          std::span(batch.tokens.ids)
              .subspan(static_cast<size_t>(sample.q_begin + 1), static_cast<size_t>(length - 1)),
          0, length);
      for (int64_t row = sample.q_begin; row + 1 < sample.q_begin + length; ++row)
        sources.push_back(static_cast<int32_t>(row));
    }
    draft_->pieces.add_batch(own.tokens);
    if (own.tokens.num_tokens == 0) continue;
    own.tokens.upload_positions(ropes_, backend_);
    own.sources = upload<int32_t>(sources, backend_);
  }
  for (Buffer* buffer : {&draft_->rows, &draft_->normed})
    *buffer = allocate<float>(backend_, longest_batch_ * config_.hidden_size);
  for (Buffer* buffer : {&draft_->both, &draft_->input})
    *buffer = allocate<float>(backend_, longest_batch_ * 2 * config_.hidden_size);
}

LayerwiseForward::BatchInput LayerwiseForward::input_of(const PackedLayer& layer, size_t batch,
                                                        float* hidden) {
  const SampleBatch& all = batches_[batch];
  if (!config_.is_draft(layer_)) return {all.tokens, hidden};
  const DraftRows::Batch& own = draft_->batches[batch];
  if (own.tokens.num_tokens == 0) return {own.tokens, nullptr};
  backend_.gather_rows({.x = hidden,
                        .rows = own.sources.as<int32_t>(),
                        .count = own.tokens.num_tokens,
                        .width = config_.hidden_size,
                        .out = draft_->rows.data()});
  return {own.tokens, make_draft_input(layer.draft, own.tokens)};
}

float* LayerwiseForward::make_draft_input(const PackedDraftInput& draft, const TokenBatch& tokens) {
  const int64_t count = tokens.num_tokens, width = config_.hidden_size;
  float *rows = draft_->rows.as<float>(), *normed = draft_->normed.as<float>();
  float* both = draft_->both.as<float>();
  const auto normalize_rows = [&](const float* x, const PackedNorm& norm, float* out) {
    normalize(backend_, config_, norm, {.x = x, .rows = count, .out = out});
  };
  const auto put = [&](float* x, int64_t first) {
    backend_.copy_heads({.x = contiguous(x, count, 1, width),
                         .out = {both + first, count, 1, width, 2 * width},
                         .width = width});
  };
  normalize_rows(rows, draft.final_norm, normed);
  normalize_rows(normed, draft.hidden_norm, rows);
  put(rows, width);

  const std::vector<int32_t> no_positions(tokens.ids.size(), 0);
  embed(tokens.ids, no_positions, rows);
  put_images(tokens, rows);
  weights_.drop(Role::kEmbedding);
  const HeadsView embedded = contiguous(rows, count, 1, width);
  if (config_.architecture->masks_first_draft)
    for (const Segment& segment : tokens.segments)
      if (segment.q_count > 0)
        backend_.scale({.x = part_of(embedded, segment.q_begin, 1), .factor = 0.0f});
  normalize_rows(rows, draft.embedding_norm, normed);
  put(normed, 0);

  convert(backend_, both, count, 2 * width, type_, draft_->input.data());
  multiply(backend_, {.x = draft_->input.data(),
                      .linear = draft.projection,
                      .rows = count,
                      .out = rows,
                      .scratch = &draft_->scratch});
  return rows;
}

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

KvView LayerwiseForward::storage_for(const SampleBatch& batch, KvView storage,
                                     float* hidden) const {
  if (!config_.has_attention(layer_)) return {};
  const int64_t tokens = batch.tokens.num_tokens;
  if (!config_.has_own_cache(layer_)) {
    const int64_t source = config_.layer(layer_).cache_layer;
    storage.dtype = KvDType::kFloat32;
    storage.k = hidden + plane_of(source, false).first * tokens;
    storage.v = hidden + plane_of(source, true).first * tokens;
  }
  for (const Plane& plane : planes_) {
    float* const rows = hidden + plane.first * tokens;
    if (plane.is_selection) {
      storage.selection = reinterpret_cast<uint32_t*>(rows);
      storage.selection_words = plane.width;
    }
    if (plane.layer != layer_) continue;
    const LayerCache& cache = config_.cache(layer_);
    backend_.load_kv({.x = plane.is_value ? storage.v : storage.k,
                      .dtype = storage.dtype,
                      .scales = plane.is_value ? storage.v_scales : storage.k_scales,
                      .rows = tokens,
                      .heads = cache.heads,
                      .head_dim = plane.width / cache.heads,
                      .out_type = ComputeType::kFloat32,
                      .out = rows});
  }
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
  const int64_t count = batch.tokens.num_tokens * config_.carried_width(longest_sample_);
  auto copy = std::make_shared<std::vector<float>>(downloaded(backend_, hidden, count));
  if (!is_one_plane) {
    const auto by_sample = std::make_shared<std::vector<float>>(copy->size());
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

}  // namespace kvcal
