// Latent attention (MLA) of LayerRunner. Source: transformers, models/deepseek_v3.
#include <algorithm>
#include <limits>

#include "family/architecture.h"
#include "forward/layer_runner.h"

namespace kvcal {
namespace {

/// Fixed in the published code, independent of rms_norm_eps.
constexpr float kLatentNormEpsilon = 1e-6f;

}  // namespace

LayerRunner::KeysValues LayerRunner::latent_keys_values(const PackedLayer& layer,
                                                        int64_t layer_index,
                                                        const TokenBatch& batch,
                                                        const RopeTables& ropes) {
  const LatentConfig& latent = config_.latent;
  HeadsView k{.data = buffers_.key_value.as<float>(),
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
  project(buffers_.normed, layer.query_down, rows, buffers_.query_down);
  backend_.norm({.x = buffers_.query_down.as<float>(),
                 .weight = layer.query_down_norm.weight.get(),
                 .epsilon = kLatentNormEpsilon,
                 .rows = rows,
                 .width = rank,
                 .out_type = type_,
                 .out = buffers_.query_normed.data(),
                 .seen = slot_of(Role::kQueryUp)});
  observe(Role::kQueryUp, buffers_.query_normed, rows, rank);
  project(buffers_.query_normed, layer.query, rows, buffers_.query);
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
  buffers_.reserve(Reserved::kReadRows, rows);

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
                    .out = buffers_.latent.data()});
  backend_.load_kv({.x = rows_at_first(storage.v, latent.rope_dim),
                    .dtype = storage.dtype,
                    .scales = storage.v_scales,
                    .rows = rows,
                    .heads = 1,
                    .head_dim = latent.rope_dim,
                    .out_type = ComputeType::kFloat32,
                    .out = buffers_.rotated_key.data()});
  fold(slot_of(Role::kLatentUp), buffers_.latent.data(), rows * latent.latent_rank, type_);
  observe(Role::kLatentUp, buffers_.latent, rows, latent.latent_rank);
  project(buffers_.latent, layer.latent_up, rows, buffers_.expanded);

  const HeadsView up{buffers_.expanded.as<float>(), rows, heads, up_dim, heads * up_dim};
  const HeadsView rotated{buffers_.rotated_key.as<float>(), rows, 1, latent.rope_dim,
                          latent.rope_dim};
  const HeadsView keys{buffers_.keys.as<float>(), rows, heads, dim, heads * dim};
  const HeadsView values{buffers_.values.as<float>(), rows, heads, latent.value_dim,
                         heads * latent.value_dim};
  const auto from = [](HeadsView view, int64_t first) {
    view.data += first;
    return view;
  };
  backend_.copy_heads({.x = up, .out = keys, .width = latent.nope_dim});
  backend_.copy_heads({.x = rotated, .out = from(keys, latent.nope_dim), .width = latent.rope_dim});
  backend_.copy_heads({.x = from(up, latent.nope_dim), .out = values, .width = latent.value_dim});
  ExpandedLatent expanded{.storage = {.dtype = KvDType::kFloat32,
                                      .k = buffers_.keys.data(),
                                      .v = buffers_.values.data()},
                          .segments = {segments.begin(), segments.end()}};
  for (Segment& segment : expanded.segments) segment.kv_begin -= first;
  return expanded;
}

}  // namespace kvcal
