// The input of a draft layer in LayerwiseForward; see family/draft_layer.h.
#include <algorithm>

#include "backend/upload.h"
#include "family/architecture.h"
#include "forward/draft_rows.h"
#include "forward/linear_product.h"

namespace kvcal {

void LayerwiseForward::make_draft_batches(std::span<const std::span<const TokenId>> samples) {
  draft_ = std::make_unique<DraftRows>();
  for (const SampleBatch& batch : batches_) {
    DraftRows::Batch& own = draft_->batches.emplace_back();
    TokenBatch& tokens = own.tokens;
    TokenPositions positions;
    std::vector<int32_t> sources;
    for (size_t i = 0; i < batch.tokens.segments.size(); ++i) {
      const auto ids = samples[static_cast<size_t>(batch.first_sample) + i];
      const auto length = static_cast<int64_t>(ids.size());
      tokens.segments.push_back({.q_begin = tokens.num_tokens,
                                 .q_count = length - 1,
                                 .kv_begin = tokens.num_tokens,
                                 .kv_count = length - 1});
      tokens.ids.insert(tokens.ids.end(), ids.begin() + 1, ids.end());
      tokens.num_tokens += length - 1;
      for (int64_t position = 0; position + 1 < length; ++position) {
        positions.add(position, length);
        sources.push_back(static_cast<int32_t>(batch.tokens.segments[i].q_begin + position));
      }
    }
    draft_->pieces.add_batch(tokens.segments);
    if (tokens.num_tokens == 0) continue;
    tokens.keep_positions(positions.upload_rows(*ropes_, backend_));
    own.sources = upload<int32_t>(sources, backend_);
  }
  const auto floats = [&](int64_t width) {
    return backend_.allocate(static_cast<size_t>(longest_batch_ * width) * sizeof(float));
  };
  draft_->rows = floats(config_.hidden_size);
  draft_->normed = floats(config_.hidden_size);
  draft_->both = floats(2 * config_.hidden_size);
  draft_->input = floats(2 * config_.hidden_size);
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
  const auto normalize = [&](const float* x, const PackedNorm& norm, float* out) {
    backend_.norm({.x = x,
                   .weight = norm.weight.get(),
                   .bias = norm.bias.get(),
                   .centered = config_.centers_norm,
                   .epsilon = config_.norm_eps,
                   .rows = count,
                   .width = width,
                   .out = out});
  };
  const auto put = [&](float* x, int64_t first) {
    backend_.copy_heads({.x = {x, count, 1, width, width},
                         .out = {both + first, count, 1, width, 2 * width},
                         .width = width});
  };
  normalize(rows, draft.final_norm, normed);
  normalize(normed, draft.hidden_norm, rows);
  put(rows, width);

  const std::vector<int32_t> no_positions(tokens.ids.size(), 0);
  embed(tokens.ids, no_positions, rows);
  weights_.drop(Role::kEmbedding);
  if (config_.architecture->masks_first_draft)
    for (const Segment& segment : tokens.segments)
      if (segment.q_count > 0)
        backend_.scale({.x = {rows + segment.q_begin * width, 1, 1, width, width}, .factor = 0.0f});
  normalize(rows, draft.embedding_norm, normed);
  put(normed, 0);

  backend_.load_kv({.x = both,
                    .dtype = KvDType::kFloat32,
                    .rows = count,
                    .heads = 1,
                    .head_dim = 2 * width,
                    .out_type = type_,
                    .out = draft_->input.data()});
  multiply(backend_, {.x = draft_->input.data(),
                      .linear = draft.projection,
                      .rows = count,
                      .out = rows,
                      .scratch = &draft_->scratch});
  return rows;
}

}  // namespace kvcal
