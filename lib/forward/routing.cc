#include "forward/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvcal {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

struct Choice {
  int64_t expert = 0;
  float weight = 0.0f;
};

std::vector<float> softmax(std::span<const float> logits) {
  const float largest = *std::ranges::max_element(logits);
  std::vector<float> scores(logits.size());
  float sum = 0.0f;
  for (size_t i = 0; i < logits.size(); ++i) sum += scores[i] = std::exp(logits[i] - largest);
  for (float& score : scores) score /= sum;
  return scores;
}

/// cap · tanh(logit / cap); the logits where cap is 0.
std::vector<float> softcapped(std::span<const float> logits, float cap) {
  std::vector<float> values(logits.begin(), logits.end());
  if (cap > 0.0f)
    for (float& value : values) value = std::tanh(value / cap) * cap;
  return values;
}

/// Indices of the count largest values; of equal ones the first comes first.
std::vector<int64_t> largest_of(std::span<const float> values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

/// Excludes the experts of all but the best groups.
void keep_best_groups(const MoeConfig& moe, float excluded, std::vector<float>& scores) {
  const auto size = static_cast<size_t>(moe.num_experts / moe.num_groups);
  std::vector<float> groups;
  for (size_t first = 0; first < scores.size(); first += size) {
    const std::span<const float> group(scores.data() + first, size);
    float score = 0.0f;
    for (const int64_t i : largest_of(group, moe.group_score == GroupScore::kLargest ? 1 : 2))
      score += group[static_cast<size_t>(i)];
    groups.push_back(score);
  }
  std::vector<bool> kept(groups.size(), false);
  for (const int64_t group : largest_of(groups, moe.groups_per_token))
    kept[static_cast<size_t>(group)] = true;
  for (size_t i = 0; i < scores.size(); ++i)
    if (!kept[i / size]) scores[i] = excluded;
}

std::vector<Choice> choose_by_score(const ModelConfig& config, std::span<const float> logits,
                                    std::span<const float> correction) {
  const MoeConfig& moe = config.moe;
  std::vector<float> scores = softcapped(logits, moe.logits_softcap);
  if (moe.score == RouterScore::kSigmoid) {
    for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
  } else {
    scores = softmax(scores);
  }
  std::vector<float> for_choice = scores;
  for (size_t i = 0; i < correction.size(); ++i) for_choice[i] += correction[i];
  if (moe.group_score != GroupScore::kNone) keep_best_groups(moe, kExcluded, for_choice);
  std::vector<Choice> chosen;
  float sum = 0.0f;
  for (const int64_t expert : largest_of(for_choice, moe.experts_per_token)) {
    chosen.push_back({expert, scores[static_cast<size_t>(expert)]});
    sum += chosen.back().weight;
  }
  // DeepSeek-V3 avoids a division by zero with this term.
  if (moe.score == RouterScore::kSigmoid) sum += 1e-20f;
  for (Choice& choice : chosen) {
    if (config.norm_topk_prob) choice.weight /= sum;
    choice.weight *= config.routed_scaling_factor;
  }
  return chosen;
}

/// Chooses the largest of candidates and weighs it against those within its margin. Source:
/// transformers phimoe `sparsemixer`.
Choice sparse_mixer_pick(std::span<const float> logits, std::vector<float>& candidates,
                         float jitter) {
  const auto best = std::ranges::max_element(candidates);
  const float largest = *best;
  const auto expert = best - candidates.begin();
  float sum = 0.0f;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float factor = std::max(std::fabs(logits[i]), largest);
    const bool is_far = (largest - logits[i]) / factor > 2.0f * jitter;
    if (!is_far) sum += std::exp(candidates[i] - largest);
  }
  candidates[static_cast<size_t>(expert)] = kExcluded;
  return {expert, 1.0f / sum};
}

std::vector<Choice> choose(const ModelConfig& config, std::span<const float> logits,
                           std::span<const float> correction) {
  if (config.moe.score != RouterScore::kSparseMixer)
    return choose_by_score(config, logits, correction);
  std::vector<float> candidates(logits.begin(), logits.end());
  const Choice first = sparse_mixer_pick(logits, candidates, config.router_jitter);
  return {first, sparse_mixer_pick(logits, candidates, config.router_jitter)};
}

}  // namespace

Routing route(const ModelConfig& config, std::span<const float> logits, int64_t row_stride,
              std::span<const float> correction, std::span<const float> expert_scales) {
  const auto experts = static_cast<size_t>(config.moe.num_experts);
  const auto stride = static_cast<size_t>(row_stride);
  Routing routing;
  routing.experts.resize(experts);
  for (size_t token = 0; token < logits.size() / stride; ++token) {
    const auto row = logits.subspan(token * stride, experts);
    for (const float logit : row)
      if (!std::isfinite(logit))
        fail("the router gives ", logit, " for token ", token, " of a batch");
    for (const Choice& choice : choose(config, row, correction)) {
      const auto expert = static_cast<size_t>(choice.expert);
      Routing::Share& share = routing.experts[expert];
      share.tokens.push_back(static_cast<int32_t>(token));
      share.weights.push_back(choice.weight *
                              (expert_scales.empty() ? 1.0f : expert_scales[expert]));
    }
  }
  return routing;
}

}  // namespace kvcal
