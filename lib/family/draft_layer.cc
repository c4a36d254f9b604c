#include "family/draft_layer.h"

#include <algorithm>
#include <array>

namespace kvcal {

void append_draft_layer(ModelConfig& config) {
  KVCAL_CHECK(config.architecture->draft != DraftLayer::kNone && !config.has_draft());
  LayerConfig draft = config.layer(config.last_attention_layer());
  draft.cache_layer = config.num_layers();
  draft.is_draft = true;
  config.layers.push_back(draft);
}

const std::vector<TensorRow>& draft_input_rows(const ModelConfig& config) {
  static const std::vector<TensorRow> kBehindLast{
      {Role::kDraftEmbeddingNorm, "enorm.weight", {Dim::kHidden}},
      {Role::kDraftHiddenNorm, "hnorm.weight", {Dim::kHidden}},
      {Role::kDraftProjection, "eh_proj.weight", {Dim::kHidden, Dim::kTwiceHidden}}};
  static const std::vector<TensorRow> kMtp{
      {Role::kDraftEmbeddingNorm, "pre_fc_norm_embedding.weight", {Dim::kHidden}},
      {Role::kDraftHiddenNorm, "pre_fc_norm_hidden.weight", {Dim::kHidden}},
      {Role::kDraftProjection, "fc.weight", {Dim::kHidden, Dim::kTwiceHidden}}};
  return config.architecture->draft == DraftLayer::kMtp ? kMtp : kBehindLast;
}

std::string draft_input_prefix(const ModelConfig& config) {
  return config.architecture->draft == DraftLayer::kMtp
             ? "mtp."
             : config.layer_prefix(config.num_hidden_layers);
}

bool is_run_by_draft(Role role) {
  using enum Role;
  constexpr std::array kRun{
      kInputNorm,     kInputNormBias,     kQueryNorm, kKeyNorm,       kQuery,         kKey,
      kValue,         kQueryBias,         kKeyBias,   kValueBias,     kQueryGate,     kQueryAndGate,
      kQueryKeyValue, kQueryKeyValueBias, kQueryDown, kQueryDownBias, kQueryDownNorm, kQueryUp,
      kLatent,        kLatentBias,        kLatentNorm};
  return std::ranges::find(kRun, role) != kRun.end();
}

std::string draft_scale_module(const ModelConfig& config, int64_t layer) {
  if (!config.is_draft(layer)) return "";
  const std::string_view inner = config.architecture->draft_scales;
  return config.attention_module(layer) + (inner.empty() ? "" : "." + std::string(inner));
}

}  // namespace kvcal
