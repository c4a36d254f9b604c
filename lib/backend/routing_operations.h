#pragma once

#include <cstdint>

#include "quant/host_device.h"

namespace kvcal {

/// Function of a router's logits before the largest are chosen.
enum class RouterScore : uint8_t {
  kSoftmax,
  kSigmoid,
  kSparseMixer,  ///< Phi-MoE: chooses the two largest in turn, each by a softmax over its near
                 ///< rivals
};

/// Score of a group of experts, where experts come from the best groups only.
enum class GroupScore : uint8_t { kNone, kLargest, kSumOfTwoLargest };

/// How a router's logits choose experts, and the chosen ones' weights.
struct RouterRule {
  int64_t experts = 0, per_token = 0;
  RouterScore score = RouterScore::kSoftmax;
  GroupScore group_score = GroupScore::kNone;
  int64_t groups = 1, groups_per_token = 1;
  float softcap = 0.0f;            ///< of the logits; 0: none
  float jitter = 0.0f;             ///< of the sparse mixer: rivals within twice this share are near
  bool normalizes = false;         ///< the chosen weights of a token by their norm
  float norm_order = 1.0f;         ///< of that norm, above 0; 1: their sum
  float factor = 1.0f;             ///< of all weights
  float shared_multiplier = 1.0f;  ///< weight of the shared expert
  bool shared_is_gated = false;    ///< times the sigmoid of the last logit, behind the experts'
  /// Shared experts with logits of their own, behind the experts': every token has them, and their
  /// sigmoids are weights as those of the chosen experts are, and normalized with them. Only of
  /// RouterScore::kSigmoid. Source: transformers 5.24, models/inkling `InklingTopkRouter`.
  int64_t scored_shared = 0;

  /// Floats of scratch for a token.
  KVCAL_HD int64_t scratch_width() const { return 2 * experts + groups; }
};

/// Chooses experts for each token by a router's logits, and sorts the tokens by expert. Computes in
/// float32, as every family does, with the same bytes on every backend. Source: transformers, the
/// routers of mixtral, deepseek_v2, deepseek_v3, phimoe, gemma4.
struct RouteArgs {
  RouterRule rule;
  const float* logits = nullptr;         ///< [rows, row_stride], the experts' first
  const float* correction = nullptr;     ///< [experts], added to scores to choose; or null
  const float* expert_scales = nullptr;  ///< [experts], factors of the weights; or null
  int64_t rows = 0, row_stride = 0;
  float* scratch = nullptr;  ///< [rows, rule.scratch_width()]
  /// The best first: [rows, per_token], and their weights. The first is kUnusable in a row with a
  /// logit that is not finite.
  int32_t* chosen = nullptr;
  float* chosen_weights = nullptr;
  /// Tokens of the first expert, ascending, then of the second, and so on: [rows * per_token], and
  /// their weights.
  int32_t* tokens = nullptr;
  float* weights = nullptr;
  /// Where the row's token stands among tokens, ascending, which is the order of its experts:
  /// [rows, per_token], unspecified in a row that is not usable. May lie in scratch.
  int32_t* places = nullptr;
  int32_t* counts = nullptr;  ///< [experts + 1]: tokens of each, then 0 or unusable(the first one)
  /// [rows], of the shared expert, or [rule.scored_shared, rows]; or null.
  float* shared_weights = nullptr;

  static constexpr int32_t kUnusable = -1;
  /// Mark of an unusable row, the larger the earlier it stands.
  KVCAL_HD int32_t unusable(int64_t row) const { return static_cast<int32_t>(rows - row); }
};

}  // namespace kvcal
