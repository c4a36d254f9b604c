// Latent attention (MLA) of LayerRunner. Source: transformers, models/deepseek_v3.
#include <algorithm>
#include <limits>

#include "family/architecture.h"
#include "forward/layer_runner.h"

namespace kvcal {
namespace {

/// Fixed in the published code, whatever rms_norm_eps says.
constexpr float kLatentNormEpsilon = 1e-6f;

void grow(Buffer& buffer, Backend& backend, size_t bytes) {
  if (buffer.size() < bytes) buffer = backend.allocate(bytes);
}

}  // namespace

LayerRunner::KeysValues LayerRunner::latent_keys_values(const PackedLayer& layer,
                                                        int64_t layer_index,
                                                        const TokenBatch& batch,
                                                        const RopeTables& ropes) {
  const LatentConfig& latent = config_.latent;
  HeadsView k{.data = key_value_.as<float>(),
              .tokens = batch.num_tokens,
              .heads = 1,
              .head_dim = latent.latent_rank,
              .row_stride = latent.latent_rank + latent.rope_dim};
  HeadsView v = k;
  v.data += latent.latent_rank;
  v.head_dim = latent.rope_dim;
  backend_.norm_heads(
      {.x = k, .weight = layer.latent_norm.weight.get(), .epsilon = kLatentNormEpsilon});
  return {k, v, rope_of(v, layer_index, batch, ropes, false)};
}

void LayerRunner::query_of_rank(const PackedLayer& layer, int64_t rows) {
  const int64_t rank = config_.latent.query_rank;
  project(normed_.data(), layer.query_down, rows, query_down_.as<float>());
  backend_.norm({.x = query_down_.as<float>(),
                 .weight = layer.query_down_norm.weight.get(),
                 .epsilon = kLatentNormEpsilon,
                 .rows = rows,
                 .width = rank,
                 .out_type = type_,
                 .out = query_normed_.data(),
                 .seen = slot_of(Role::kQueryUp)});
  observe({.role = Role::kQueryUp,
           .x = query_normed_.data(),
           .type = type_,
           .rows = rows,
           .width = rank});
  project(query_normed_.data(), layer.query, rows, query_.as<float>());
}

ExpandedLatent LayerRunner::expand(const PackedLayer& layer, std::span<const Segment> segments,
                                   const KvStorage& storage) {
  const LatentConfig& latent = config_.latent;
  const int64_t heads = config_.num_attention_heads, dim = config_.head_dim;
  const int64_t up_dim = latent.nope_dim + latent.value_dim;
  int64_t first = std::numeric_limits<int64_t>::max(), end = 0;
  for (const Segment& segment : segments) {
    first = std::min(first, segment.kv_begin);
    end = std::max(end, segment.kv_begin + segment.kv_count);
  }
  const int64_t rows = end - first;
  const auto reserve = [&](Buffer& buffer, int64_t width, size_t element) {
    grow(buffer, backend_, static_cast<size_t>(rows * width) * element);
  };
  reserve(latent_, latent.latent_rank, bytes_of(type_));
  reserve(rotated_key_, latent.rope_dim, sizeof(float));
  reserve(expanded_, heads * up_dim, sizeof(float));
  reserve(keys_, heads * dim, sizeof(float));
  reserve(values_, heads * latent.value_dim, sizeof(float));

  const auto rows_at_first = [&](const void* side, int64_t width) {
    return static_cast<const std::byte*>(side) + first * width * bytes_per_element(storage.dtype);
  };
  backend_.load_kv({.x = rows_at_first(storage.k, latent.latent_rank),
                    .dtype = storage.dtype,
                    .scales = storage.k_scales,
                    .rows = rows,
                    .heads = 1,
                    .head_dim = latent.latent_rank,
                    .out_type = type_,
                    .out = latent_.data()});
  backend_.load_kv({.x = rows_at_first(storage.v, latent.rope_dim),
                    .dtype = storage.dtype,
                    .scales = storage.v_scales,
                    .rows = rows,
                    .heads = 1,
                    .head_dim = latent.rope_dim,
                    .out_type = ComputeType::kFloat32,
                    .out = rotated_key_.data()});
  fold(slot_of(Role::kLatentUp), latent_.data(), rows * latent.latent_rank, type_);
  observe({.role = Role::kLatentUp,
           .x = latent_.data(),
           .type = type_,
           .rows = rows,
           .width = latent.latent_rank});
  project(latent_.data(), layer.latent_up, rows, expanded_.as<float>());

  const HeadsView up{expanded_.as<float>(), rows, heads, up_dim, heads * up_dim};
  const HeadsView rotated{rotated_key_.as<float>(), rows, 1, latent.rope_dim, latent.rope_dim};
  const HeadsView keys{keys_.as<float>(), rows, heads, dim, heads * dim};
  const HeadsView values{values_.as<float>(), rows, heads, latent.value_dim,
                         heads * latent.value_dim};
  const auto from = [](HeadsView view, int64_t first) {
    view.data += first;
    return view;
  };
  backend_.copy_heads({.x = up, .out = keys, .width = latent.nope_dim});
  backend_.copy_heads({.x = rotated, .out = from(keys, latent.nope_dim), .width = latent.rope_dim});
  backend_.copy_heads({.x = from(up, latent.nope_dim), .out = values, .width = latent.value_dim});
  ExpandedLatent expanded{
      .storage = {.dtype = KvDType::kFloat32, .k = keys_.data(), .v = values_.data()},
      .segments = {segments.begin(), segments.end()}};
  for (Segment& segment : expanded.segments) segment.kv_begin -= first;
  return expanded;
}

}  // namespace kvcal
