// The backend routes tokens to experts, the host only learns how many each gets. Backend::route
// chooses by the router's logits and sorts the tokens by expert where the logits are: on a
// device in two kernels. How many rows an expert multiplies decides which GEMMs run, so the host
// waits for these counts, once a layer and batch. This header is compiled for hosts and devices
// and calls no library function, so all choose and weigh with the same bytes.
#pragma once

#include "backend/routing_operations.h"
#include "quant/power.h"

// The choice of experts for one token, for hosts and devices: of operations that IEEE 754 rounds,
// and in a fixed order, so that all choose and weigh alike.
namespace kvcal {

/// e^x rounded to float32, for x that is no NaN.
KVCAL_HD inline float routing_exp(float x) {
  if (x < -104.0f) return 0.0f;  // less than half of the smallest number
  if (x > 89.0f) return __builtin_huge_valf();
  return static_cast<float>(exp2_of(static_cast<double>(x) * 1.4426950408889634));
}

/// tanh x rounded to float32, for finite x.
KVCAL_HD inline float routing_tanh(float x) {
  if (x > 20.0f) return 1.0f;
  if (x < -20.0f) return -1.0f;
  const double wide = x, square = wide * wide;
  if (square < 1e-3)  // x - x³/3 + 2 x⁵/15 - 17 x⁷/315 + 62 x⁹/2835
    return static_cast<float>(
        wide + wide * square *
                   (square * (2.0 / 15.0 + square * (square * (62.0 / 2835.0) - 17.0 / 315.0)) -
                    1.0 / 3.0));
  const double e = exp2_of(wide * 2.8853900817779268);
  return static_cast<float>((e - 1.0) / (e + 1.0));
}

KVCAL_HD inline float routing_sigmoid(float x) {
  return 1.0f / (1.0f + routing_exp(-x));
}

KVCAL_HD inline float routing_magnitude(float x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}

/// One token's choice. Its scratch lies step elements apart, so that the threads of a device read
/// neighbours.
class ExpertChoice {
 public:
  /// scratch: of this token, its first element.
  KVCAL_HD ExpertChoice(const RouteArgs& args, int64_t row, float* scratch, int64_t step)
      : args_(args),
        rule_(args.rule),
        row_(row),
        logits_(args.logits + row * args.row_stride),
        scores_(scratch),
        ranks_(scratch + args.rule.experts * step),
        groups_(ranks_ + args.rule.experts * step),
        step_(step) {}

  /// Writes the token's experts and weights; false where a logit is not finite.
  KVCAL_HD bool choose() {
    weigh_shared();
    for (int64_t i = 0; i < rule_.experts + rule_.scored_shared; ++i)
      if (!(routing_magnitude(logits_[i]) < kInfinite)) {
        args_.chosen[row_ * rule_.per_token] = RouteArgs::kUnusable;
        return false;
      }
    if (rule_.score == RouterScore::kSparseMixer)
      choose_by_rivals();
    else
      choose_by_score();
    return true;
  }

 private:
  static constexpr float kInfinite = __builtin_huge_valf();
  struct Ranked {
    int64_t index = -1;
    float value = 0.0f;
    /// Of equal values the first comes first.
    KVCAL_HD bool comes_before(float other, int64_t at) const {
      return value > other || (value == other && index < at);
    }
  };

  KVCAL_HD float score(int64_t i) const { return scores_[i * step_]; }
  KVCAL_HD float rank(int64_t i) const { return ranks_[i * step_]; }
  KVCAL_HD void put(int64_t slot, int64_t expert, float weight) {
    const int64_t at = row_ * rule_.per_token + slot;
    args_.chosen[at] = static_cast<int32_t>(expert);
    args_.chosen_weights[at] = args_.expert_scales ? weight * args_.expert_scales[expert] : weight;
  }

  KVCAL_HD void weigh_shared() {
    if (!args_.shared_weights || rule_.scored_shared > 0) return;
    const float weight = rule_.shared_multiplier;
    args_.shared_weights[row_] = rule_.shared_is_gated
                                     ? weight / (1.0f + routing_exp(-logits_[args_.row_stride - 1]))
                                     : weight;
  }

  /// The largest of ranks [begin, end) behind before, or of all where that is none.
  KVCAL_HD Ranked next_ranked(int64_t begin, int64_t end, const Ranked& before) const {
    Ranked best;
    for (int64_t i = begin; i < end; ++i) {
      const float value = rank(i);
      if (before.index >= 0 && !before.comes_before(value, i)) continue;
      if (best.index < 0 || value > best.value) best = {i, value};
    }
    return best;
  }

  KVCAL_HD void score_all() {
    for (int64_t i = 0; i < rule_.experts; ++i) {
      float x = logits_[i];
      if (rule_.softcap > 0.0f) x = routing_tanh(x / rule_.softcap) * rule_.softcap;
      scores_[i * step_] = rule_.score == RouterScore::kSigmoid ? routing_sigmoid(x) : x;
    }
    if (rule_.score == RouterScore::kSigmoid) return;
    float largest = score(0), sum = 0.0f;
    for (int64_t i = 1; i < rule_.experts; ++i)
      if (score(i) > largest) largest = score(i);
    for (int64_t i = 0; i < rule_.experts; ++i)
      sum += scores_[i * step_] = routing_exp(score(i) - largest);
    for (int64_t i = 0; i < rule_.experts; ++i) scores_[i * step_] = score(i) / sum;
  }

  KVCAL_HD void choose_by_score() {
    score_all();
    for (int64_t i = 0; i < rule_.experts; ++i) {
      const float rank = args_.correction ? score(i) + args_.correction[i] : score(i);
      ranks_[i * step_] = rank == rank ? rank : -kInfinite;  // a correction that is NaN
    }
    if (rule_.group_score != GroupScore::kNone) keep_best_groups();
    // DeepSeek-V3 avoids a division by zero with this term.
    float sum = 0.0f;
    Ranked last;
    for (int64_t slot = 0; slot < rule_.per_token; ++slot) {
      last = next_ranked(0, rule_.experts, last);
      sum += score(last.index);
      args_.chosen[row_ * rule_.per_token + slot] = static_cast<int32_t>(last.index);
    }
    for (int64_t i = 0; i < rule_.scored_shared; ++i) sum += score_of_shared(i);
    if (rule_.score == RouterScore::kSigmoid) sum += 1e-20f;
    if (rule_.norm_order != 1.0f) sum = norm_of_chosen();
    for (int64_t slot = 0; slot < rule_.per_token; ++slot) {
      const int64_t expert = args_.chosen[row_ * rule_.per_token + slot];
      const float weight = rule_.normalizes ? score(expert) / sum : score(expert);
      put(slot, expert, weight * rule_.factor);
    }
    for (int64_t i = 0; i < rule_.scored_shared; ++i) {
      const float weight = rule_.normalizes ? score_of_shared(i) / sum : score_of_shared(i);
      args_.shared_weights[i * args_.rows + row_] = weight * rule_.factor;
    }
  }

  KVCAL_HD float score_of_shared(int64_t i) const {
    return routing_sigmoid(logits_[rule_.experts + i]);
  }

  KVCAL_HD float norm_of_chosen() const {
    const double order = rule_.norm_order;
    double sum = 0.0;
    for (int64_t slot = 0; slot < rule_.per_token; ++slot)
      sum += power(score(args_.chosen[row_ * rule_.per_token + slot]), order);
    return static_cast<float>(power(sum, 1.0 / order));
  }

  KVCAL_HD float score_of_group(int64_t group) const {
    const int64_t size = rule_.experts / rule_.groups;
    const Ranked first = next_ranked(group * size, (group + 1) * size, {});
    if (rule_.group_score == GroupScore::kLargest) return first.value;
    return first.value + next_ranked(group * size, (group + 1) * size, first).value;
  }

  /// Excludes the experts of groups that have as many better groups as are kept.
  KVCAL_HD void keep_best_groups() {
    const int64_t size = rule_.experts / rule_.groups;
    for (int64_t group = 0; group < rule_.groups; ++group)
      groups_[group * step_] = score_of_group(group);
    for (int64_t group = 0; group < rule_.groups; ++group) {
      const float own = groups_[group * step_];
      int64_t better = 0;
      for (int64_t other = 0; other < rule_.groups; ++other)
        if (Ranked{other, groups_[other * step_]}.comes_before(own, group)) ++better;
      if (better < rule_.groups_per_token) continue;
      for (int64_t i = group * size; i < (group + 1) * size; ++i) ranks_[i * step_] = -kInfinite;
    }
  }

  KVCAL_HD void choose_by_rivals() {
    for (int64_t i = 0; i < rule_.experts; ++i) ranks_[i * step_] = logits_[i];
    for (int64_t slot = 0; slot < rule_.per_token; ++slot) choose_among_rivals(slot);
  }

  /// Chooses the largest that is left and weighs it against those within its margin. Source:
  /// transformers phimoe `sparsemixer`.
  KVCAL_HD void choose_among_rivals(int64_t slot) {
    const Ranked best = next_ranked(0, rule_.experts, {});
    float sum = 0.0f;
    for (int64_t i = 0; i < rule_.experts; ++i) {
      const float magnitude = routing_magnitude(logits_[i]);
      const float factor = magnitude > best.value ? magnitude : best.value;
      const bool is_far = (best.value - logits_[i]) / factor > 2.0f * rule_.jitter;
      if (!is_far) sum += routing_exp(rank(i) - best.value);
    }
    ranks_[best.index * step_] = -kInfinite;
    put(slot, best.index, 1.0f / sum);
  }

  const RouteArgs& args_;
  const RouterRule& rule_;
  int64_t row_;
  const float* logits_;
  float *scores_, *ranks_, *groups_;  ///< [experts], [experts], [groups]
  int64_t step_;
};

}  // namespace kvcal
